"""What the package exports: what a user calls, and not all that it is made of."""
import ast
from importlib import import_module
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / 'mmcluspro'


def exported():
    for path in sorted(PACKAGE.rglob('*.py')):
        if '.mim' in path.parts or '__all__' not in path.read_text(encoding='utf-8'):
            continue
        parts = path.relative_to(PACKAGE.parent).with_suffix('').parts
        for node in ast.parse(path.read_text(encoding='utf-8')).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], 'id', '') == '__all__':
                module = '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)
                yield from ((module, name) for name in ast.literal_eval(node.value))


def test_few_names_are_exported_and_all_are_there():
    found = list(exported())
    for module, name in found:
        assert getattr(import_module(module), name) is not None, (module, name)
    assert 50 < len({name for _, name in found}) <= 80
