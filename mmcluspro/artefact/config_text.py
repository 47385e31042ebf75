"""Reads the config text inside a checkpoint as data: it is never executed, nor built from.

mmengine saves ``cfg.pretty_text``, lines of Python that its own reader runs. Here the text is
parsed; files of the time before descriptions are described from it
(:func:`.spec.describe`), and ``publish`` takes private paths out of it.
"""
import ast
from typing import Any

from mmcluspro.errors import FileError

LENGTH = 2_000_000


def parse_config(text: Any, name: str) -> dict[str, Any]:
    """Turns ``key = value`` lines into plain data, without running them.

    Args:
        text (str): ``pretty_text`` of a config: literals and ``dict(…)``.
        name (str): What messages call the checkpoint.

    Returns:
        dict: The same fields.
    """
    fields: dict[str, Any] = {}
    try:
        if not isinstance(text, str) or len(text) > LENGTH:
            raise ValueError(f'text of at most {LENGTH:,} characters expected')
        for line in ast.parse(text).body:
            if not isinstance(line, ast.Assign) or not isinstance(line.targets[0], ast.Name):
                raise ValueError(f'line {line.lineno} is not an assignment')
            fields[line.targets[0].id] = _value(line.value)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise FileError(
            name, f'the config inside cannot be read ({error}); it may hold names, numbers, lists '
            'and dicts only', 'Give the config file yourself with --config FILE (config=…).',
            'meta.cfg') from None
    return fields


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        function = node.func.id if isinstance(node.func, ast.Name) else ''
        if function == 'dict' and not node.args and all(word.arg for word in node.keywords):
            return {word.arg: _value(word.value) for word in node.keywords}
        if function == 'float' and len(node.args) == 1 and not node.keywords:
            return float(_value(node.args[0]))
        raise ValueError(f'line {node.lineno} calls {ast.unparse(node.func)}')
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {_value(key): _value(value) for key, value in zip(node.keys, node.values) if key}
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
        return kind(_value(item) for item in node.elts)
    if isinstance(node, ast.Name) and node.id in ('inf', 'nan'):
        return float(node.id)
    return ast.literal_eval(node)
