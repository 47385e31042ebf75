"""Reads the config inside a checkpoint as data: its text is never executed.

mmengine saves ``cfg.pretty_text``, lines of Python that its own reader runs. A
checkpoint may come from anywhere, so here the text is parsed, and what would
import or call a name of the file's choosing is refused.
"""
import ast
from collections.abc import Iterator
from typing import Any

from mmengine.config import Config
from mmpretrain.registry import MODELS as MMPRETRAIN_MODELS
from mmpretrain.registry import TRANSFORMS as MMPRETRAIN_TRANSFORMS

from mmcluspro.registry import MODELS, TRANSFORMS

SCOPES = ('mmcluspro', 'mmpretrain', 'mmcv', 'mmengine')


def parse_config(text: str, name: str) -> Config:
    """Turns ``key = value`` lines into a config, without running them.

    Args:
        text (str): ``pretty_text`` of a config: literals and ``dict(…)``.
        name (str): What messages call the checkpoint.

    Returns:
        Config: The same fields.
    """
    fields: dict[str, Any] = {}
    try:
        for line in ast.parse(text).body:
            if not isinstance(line, ast.Assign) or not isinstance(line.targets[0], ast.Name):
                raise ValueError(f'line {line.lineno} is no assignment')
            fields[line.targets[0].id] = _value(line.value)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ValueError(
            f'The config inside {name} cannot be read: {error}. It may hold names, numbers, '
            'lists and dicts only. Give the config file yourself with config=…') from None
    return Config(fields)


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


def check_types(cfg: Any, name: str) -> None:
    """Refuses fields by which building a part would import a path of the file's choosing.

    Args:
        cfg (Any): The part that is going to be built.
        name (str): What messages call the checkpoint.
    """
    for field, value in _strings(cfg):
        if (field == 'type' and not _is_registered(value)
                or field == 'readable' and not value.startswith('mmcluspro.datasets.')
                or field == '_scope_' and value not in SCOPES):
            raise ValueError(
                f'{name} was refused: its config has {field}={value!r}, which is not registered '
                'here and would be imported or called. If it is yours, import the module that '
                'registers it before loading; if you trust the file, give its config file with '
                'config=…')


def _is_registered(name: str) -> bool:
    """Whether a name stands for a registered part, not for a path to import."""
    scope, _, key = name.rpartition('.')
    if scope not in ('', *SCOPES):
        return False
    for registry in (MODELS, TRANSFORMS, MMPRETRAIN_MODELS, MMPRETRAIN_TRANSFORMS):
        registry.import_from_location()
        if key in registry.module_dict or key in registry.parent.module_dict:
            return True
    return False


def _strings(cfg: Any) -> Iterator[tuple[str, str]]:
    """All (key, value) with a string as value, at any depth."""
    if isinstance(cfg, dict):
        for key, value in cfg.items():
            if isinstance(value, str):
                yield str(key), value
            else:
                yield from _strings(value)
    elif isinstance(cfg, (list, tuple)):
        for value in cfg:
            yield from _strings(value)
