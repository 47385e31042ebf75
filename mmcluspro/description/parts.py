"""Parts of a model in a description: which classes a file may name, and their fields.

A part is a dict with ``type`` and fields that its class declares (:mod:`mmcluspro.fields`). Our
registry is the closed list of classes; those of other packages are named by the user, never by
the file.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, TypeGuard

from mmengine.registry import Registry

from mmcluspro import models  # noqa: F401 (registers the classes)
from mmcluspro.features import CachedFeatures
from mmcluspro.fields import (
    MISSING,
    OTHERS,
    Left,
    Options,
    Part,
    Refusal,
    Source,
    fields_of,
    needs,
    shown,
)
from mmcluspro.registry import MODELS

OURS = 'mmcluspro'
# Their classes take addresses and expressions as fields: a config file of the user's can say that.
CLOSED = ('builtins', OURS, 'mmcv', 'mmdet', 'mmengine', 'mmpretrain', 'open_clip', 'os',
          'timm', 'torch', 'torchvision', 'transformers')
DEPTH = 20
DEFAULT_SCOPES = (OURS, 'mmpretrain', 'mmengine')  # of names without one, in this order


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


def ours(owner: type | None) -> TypeGuard[type]:
    """Whether a class is one of the closed list: ours, or declared by us for another package."""
    return isinstance(owner, type) and (
        owner in OTHERS or owner.__module__.split('.')[0] == OURS)


def class_named(kind: str) -> type | None:
    """A class by the name in a config or a file, in the scope that the name is written with.

    Only looks up what is registered: nothing is imported, and no dotted path is followed.
    """
    scope, _, name = kind.rpartition('.')
    found = [registry.module_dict[name] for wanted in ([scope] if scope else DEFAULT_SCOPES)
             for registry in registries() if registry.scope == wanted
             and name in registry.module_dict]
    return found[0] if found else None


def registries() -> list[Registry]:
    """All registries of models, of this package and others."""
    root: Registry = MODELS
    while root.parent is not None:
        root = root.parent
    found = [root]
    for registry in found:
        found.extend(registry.children.values())
    return found


def class_of(part: Mapping[str, Any]) -> type | None:
    """The class of a checked part, whose type is a name or the class of a user."""
    kind = part['type']
    return class_named(kind) if isinstance(kind, str) else kind


def check_part(value: Any, where: str, part: Part, imports: Sequence[str]) -> dict[str, Any]:
    """A part with nothing but what its class declares.

    Args:
        value (Any): What the file holds.
        where (str): Name of the field.
        part (Part): Which classes it may be.
        imports (Sequence[str]): Modules that the user named: their registered classes may stand
            here, with plain data as fields that they do not declare.

    Returns:
        dict: Its ``type`` is a name, or the class itself if it is the user's.
    """
    if not isinstance(value, dict) or not isinstance(value.get('type'), str):
        raise Refusal(f'{where} must be a dict with a type, got {shown(value)}')
    kind = value['type']
    given = {name: entry for name, entry in value.items() if name != 'type'}
    owner = class_named(kind)
    if '.' not in kind and ours(owner) and issubclass(owner, part.bases):
        return dict(check_fields(given, where, owner, imports), type=kind)
    module = getattr(owner, '__module__', '')
    if owner is None or not any(
            module == own or module.startswith(f'{own}.') for own in imports):
        known = [name for registry in registries() for name, entry in registry.module_dict.items()
                 if ours(entry) and issubclass(entry, part.bases)]
        advice = (f'It is not registered by {", ".join(imports)}: name the module that does'
                  if imports else 'If the class is yours, name its module')
        raise Refusal(
            f'{where}.type is {shown(kind)}, which a checkpoint may not choose here; it '
            f'may choose {", ".join(known)}. {advice} with --import MODULE '
            "(imports=['MODULE'] in Python) or give your config with --config FILE (config=…)")
    declared = fields_of(owner)
    own = {name: entry for name, entry in given.items()
           if name in declared and declared[name].kind is not None}
    rest = {name: entry for name, entry in given.items() if name not in own}
    return dict(_plain(rest, where, imports, DEPTH),
                **check_fields(own, where, owner, imports, complete=False), type=owner)


def check_fields(value: Any, where: str, owner: type, imports: Sequence[str],
                 complete: bool = True) -> dict[str, Any]:
    """Fields of a class with nothing but what it declares.

    Args:
        value (Any): What the file holds.
        where (str): Name of the part.
        owner (type): The class.
        imports (Sequence[str]): As in :func:`check_part`.
        complete (bool): Whether fields without a default must be there. Defaults to True.
    """
    if not isinstance(value, dict):
        raise Refusal(f'{where} must be a dict, got {shown(value)}')
    declared = {name: field for name, field in fields_of(owner).items()
                if field.kind is not None and not isinstance(field.kind, Left)}
    for name in value:
        if name not in declared:
            raise Refusal(f'{where} has the field {shown(name)}, which is not known; known are '
                          f'{", ".join(declared)}')
    found: dict[str, Any] = {}
    for name, field in declared.items():
        if name not in value:
            continue
        entry, place = value[name], f'{where}.{name}'
        if isinstance(field.kind, (Part, Options)) and entry is None and field.default is None:
            found[name] = None
        elif isinstance(field.kind, Part):
            found[name] = check_part(entry, place, field.kind, imports)
        elif isinstance(field.kind, Options):
            found[name] = check_fields(entry, place, field.kind.owner, imports, complete=False)
        else:
            found[name] = field.kind(entry, place)
    if complete:
        needs(found, [name for name, field in declared.items() if field.default is MISSING], where)
    for field in declared.values():
        if isinstance(field.kind, Source):
            field.kind.fit(found, where)
    return found


def _plain(value: Any, where: str, imports: Sequence[str], depth: int) -> Any:
    """Plain data inside a class of the user's, with our classes in it."""
    if depth == 0:
        raise Refusal(f'{where} is nested too deeply')
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(entry, f'{where}[{place}]', imports, depth - 1)
                for place, entry in enumerate(value)]
    if isinstance(value, dict) and 'type' in value:
        return check_part(value, where, Part((object, )), imports)
    # A leading underscore is mmengine's own, such as _scope_.
    if isinstance(value, dict) and all(
            isinstance(key, str) and not key.startswith('_') for key in value):
        return {key: _plain(entry, f'{where}.{key}', imports, depth - 1)
                for key, entry in value.items()}
    raise Refusal(f'{where} must be plain data, got {shown(value)}')


def describe_part(value: Any) -> Any:
    """A part of a config in the words of a description; other values as they are."""
    if isinstance(value, list):
        return [describe_part(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    kind = value.get('type', '')
    if not isinstance(kind, str):
        raise Refusal(f'type must be text, got {shown(kind)}')
    owner = class_named(kind)
    if owner is CachedFeatures:  # features on disk of the backbone that it holds
        return describe_part(value.get('backbone'))
    found = describe_fields(value, owner)
    if kind:
        scope, _, name = kind.rpartition('.')
        found['type'] = name if scope in DEFAULT_SCOPES else kind
    return found


def describe_fields(value: Any, owner: type | None) -> dict[str, Any]:
    """Fields of a class in the words of a description.

    What only training needs is left out. Defaults of our classes are written out, because those of
    a later version may differ.

    Args:
        value (Any): Fields of the config, or None.
        owner (type, optional): The class; None if it is not known here.
    """
    if not isinstance(value, dict | None):
        return value
    declared = {} if owner is None else fields_of(owner)
    found = {name: field.default for name, field in declared.items() if ours(owner)
             and field.default is not MISSING and field.kind is not None}
    found.update({name: entry for name, entry in (value or {}).items()
                  if name not in ('type', 'init_cfg', '_scope_')})
    for name in [*found]:
        kind = declared[name].kind if name in declared else None
        if isinstance(kind, Left):
            del found[name]
        elif isinstance(kind, Options):
            found[name] = describe_fields(found[name], kind.owner)
        elif isinstance(kind, Source):
            found[name] = kind.name(found[name], found)
        elif isinstance(kind, Part) and kind.default is not None and found[name] is None:
            found[name] = describe_part(dict(type=f'{OURS}.{kind.default.__name__}'))
        elif kind is None or isinstance(kind, Part):
            found[name] = describe_part(found[name])
    return found


def buildable(part: Any) -> Any:
    """What the registry builds of a checked part: our names with their scope, a user's as it is.

    Our classes are built as prediction needs them, see :class:`~mmcluspro.fields.Left`.
    """
    if isinstance(part, list):
        return [buildable(entry) for entry in part]
    if not isinstance(part, dict):
        return part
    owner = class_of(part) if 'type' in part else None
    declared = {} if owner is None else fields_of(owner)
    found = {name: entry if name in declared and declared[name].kind is not None
             and not isinstance(declared[name].kind, Part) else buildable(entry)
             for name, entry in part.items()}
    if isinstance(part.get('type'), str) and owner is not None:
        found['type'] = f'{owner.__module__.split(".")[0]}.{part["type"]}'
        found = _predicting(found, owner)
    return found


def _predicting(given: dict[str, Any], owner: type) -> dict[str, Any]:
    found = dict(given)
    for name, field in fields_of(owner).items():
        if isinstance(field.kind, Left) and field.kind.value is not MISSING:
            found[name] = field.kind.value
        elif isinstance(field.kind, Options):
            found[name] = _predicting(found.get(name) or {}, field.kind.owner)
    return found
