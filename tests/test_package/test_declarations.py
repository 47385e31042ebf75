"""What pyproject.toml declares is what the code imports, in the versions that it checks."""
import ast
import re
import sys
from pathlib import Path

import pytest
import yaml

from mmcluspro.requirements import REQUIREMENTS, _numbers

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
# Import name → distribution, where they differ.
DISTRIBUTION = {
    'PIL': 'pillow', 'yaml': 'pyyaml', 'sklearn': 'scikit-learn', 'open_clip': 'open_clip_torch',
    'mmcv': 'mmcv-lite', 'ot': 'POT', 'modelindex': 'model-index', 'mim': 'openmim',
    'ignite': 'pytorch-ignite', 'pillow_heif': 'pillow-heif',
    'torch.utils.tensorboard': 'tensorboard',
    # The image library of mmcv, in the variant (with or without windows) that it installs.
    'cv2': 'mmcv-lite',
}
# Sub-packages that are importable with their extra only.
EXTRA = {'export': 'export', 'demo': 'demo', 'visualization': 'viz'}
LOCAL = {'mmcluspro', 'contrastive', 'experiments', 'conftest', 'cached_worker', 'my_method',
         'draw_photographs', 'prepare_photographs', 'file_steps', 'shapes_captions', 'mutation',
         'convert_metadata', 'prepare_ao_clevr', 'field', 'fault_kinds', 'fault_runs',
         'fault_tables'}


def declared(*extras):
    """Distributions of the dependencies and of some extras, in lower case."""
    lines = [*PROJECT['dependencies'],
             *(line for extra in extras for line in PROJECT['optional-dependencies'][extra])]
    return {re.match(r'[\w.-]+', line)[0].lower() for line in lines}


def imports(path):
    """Distributions that a file imports, in lower case."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        elif (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
              and node.func.attr == 'importorskip'):
            names = [node.args[0].value]
        found |= {DISTRIBUTION.get(name) or DISTRIBUTION.get(name.split('.')[0])
                  or name.split('.')[0] for name in names}
    return {name.lower() for name in found if name not in sys.stdlib_module_names} - LOCAL


def neighbours(path):
    """Modules in the folder of a tool, which its script finds by itself."""
    return {file.stem.lower() for file in path.parent.glob('*.py')}


def undeclared(folder, allowed):
    files = [path for path in sorted((ROOT / folder).rglob('*.py')) if '.mim' not in path.parts]
    return {f'{path.relative_to(ROOT)}: {name}' for path in files
            for name in imports(path) - allowed(path) - neighbours(path)}


def test_the_package_imports_what_it_declares():
    def allowed(path):
        part = path.relative_to(ROOT / 'mmcluspro').parts[0]
        return declared('mm', 'frames', 'heic', *([EXTRA[part]] if part in EXTRA else []))
    assert undeclared('mmcluspro', allowed) == set()


@pytest.mark.parametrize('folder, extras', [
    ('tools', ['viz', 'export', 'words', 'docs', 'frames']),
    ('tests', ['test', 'demo', 'docs', 'export', 'frames', 'hf', 'viz', 'words', 'heic']),
    ('docs', ['docs', 'export'])])
def test_the_rest_imports_what_the_extras_declare(folder, extras):
    assert undeclared(folder, lambda path: declared('mm', *extras)) == set()


def test_lower_bounds_leave_out_what_security_lists():
    """Except torch, where below the last one prediction warns."""
    rows = re.findall(r'^\| ([\w-]+) \| [\d.]+ \| CVE.*\| .*?([\d.]+) \|$',
                      (ROOT / 'SECURITY.md').read_text(), re.MULTILINE)
    assert {'torch', 'gradio', 'onnx', 'pillow', 'starlette'} == set(dict(rows))
    bounds = dict(re.findall(r'"([\w-]+)>=([\d.]+)', (ROOT / 'pyproject.toml').read_text()))
    low = [name for name, fixed in rows if _numbers(bounds[name]) < _numbers(fixed)]
    assert low == ['torch'] and bounds['torch'] == '2.6'


def test_the_workflow_may_only_read_and_pins_its_actions():
    text = (ROOT / '.github/workflows/ci.yml').read_text()
    workflow = yaml.safe_load(text)
    assert workflow['permissions'] == dict(contents='read')
    actions = [step['uses'] for job in workflow['jobs'].values() for step in job['steps']
               if 'uses' in step]
    assert actions and all(re.fullmatch(r'[\w/-]+@[0-9a-f]{40}', action) for action in actions)


def test_every_dependency_is_imported():
    used = {name for path in (ROOT / 'mmcluspro').rglob('*.py') for name in imports(path)}
    used |= {name for path in (ROOT / 'tools').rglob('*.py') for name in imports(path)}
    # torchvision is imported by open_clip and mmpretrain, in the version that fits torch.
    assert declared('mm') - used <= {'torchvision'}


def test_minimum_versions_have_one_source():
    names = {name: DISTRIBUTION.get(name, name) for name, _, _ in REQUIREMENTS}
    short = lambda version: re.sub(r'(\.0)+$', '', version)
    wanted = [f'{names[name]}>={short(lowest)},<{short(beyond)}'
              for name, lowest, beyond in REQUIREMENTS]
    assert PROJECT['optional-dependencies']['mm'] == wanted
