"""Classes of other packages: named by the user, never by the file."""
from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from mmcluspro.registry import MODELS

from .fields import Refusal, shown

# Their classes take addresses and expressions as fields: a config file of the user's can say that.
CLOSED = ('builtins', 'mmcluspro', 'mmcv', 'mmdet', 'mmengine', 'mmpretrain', 'open_clip', 'os',
          'timm', 'torch', 'torchvision', 'transformers')
DEPTH = 20


def import_modules(names: Sequence[str]) -> tuple[str, ...]:
    """Imports the modules that the user named, which registers their classes.

    Args:
        names (Sequence[str]): For example ``['my_method']``.
    """
    for name in names:
        if name.split('.')[0] in CLOSED:
            raise ValueError(f'--import is for a module of your own, got {name!r}. Classes of '
                             'other packages are built from a config file: give it with --config.')
        try:
            import_module(name)
        except ImportError as error:
            raise ValueError(f'--import {name}: the module cannot be imported ({error}). Install '
                             'it, or set PYTHONPATH to where it lies.') from error
    return tuple(names)


def foreign_part(value: dict, where: str, schema: Any, known: Sequence[str]) -> dict:
    """A class that a module of the user's registered; its fields are plain data.

    Args:
        value (dict): The part, with a type that the schema does not know here.
        where (str): Name of the field.
        schema (Schema): Whose ``imports`` the user named.
        known (Sequence[str]): What the schema knows here.

    Returns:
        dict: With the class itself as type.
    """
    name = value['type'].rpartition('.')[2]
    found = MODELS.module_dict.get(name) if schema.imports else None
    module = getattr(found, '__module__', '')
    if not any(module == own or module.startswith(f'{own}.') for own in schema.imports):
        raise Refusal(
            f'{where}.type is {shown(value["type"])}, which a checkpoint may not choose here; it '
            f'may choose {", ".join(known)}. If the class is yours, name its module with --import '
            "MODULE (imports=['MODULE'] in Python) or give your config with --config FILE "
            '(config=…)')
    fields = _plain({key: entry for key, entry in value.items() if key != 'type'}, where, schema,
                    DEPTH)
    return dict(fields, type=found)


def _plain(value: Any, where: str, schema: Any, depth: int) -> Any:
    if depth == 0:
        raise Refusal(f'{where} is nested too deeply')
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(entry, f'{where}[{place}]', schema, depth - 1)
                for place, entry in enumerate(value)]
    if isinstance(value, dict) and 'type' in value:
        return schema.any_part(value, where)
    # A leading underscore is mmengine's own, such as _scope_.
    if isinstance(value, dict) and all(
            isinstance(key, str) and not key.startswith('_') for key in value):
        return {key: _plain(entry, f'{where}.{key}', schema, depth - 1)
                for key, entry in value.items()}
    raise Refusal(f'{where} must be plain data, got {shown(value)}')
