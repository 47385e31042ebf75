"""The description of a model: plain data with a closed schema (docs/checkpoints.md).

Classes declare their fields (:mod:`mmcluspro.fields`). :func:`describe` turns a config, which is
data here and never built from, into a description; :func:`checked` takes the one of a file. What
only training needs is left out; any other class or field that is not declared is refused, because
leaving it out could change predictions.

A part is a dict with ``type`` and fields that its class declares. Our registry is the closed list
of classes; those of other packages are named by the user, never by the file.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, TypeGuard

from mmengine.registry import Registry
from mmpretrain.models.utils import ClsDataPreprocessor

from mmcluspro import models  # noqa: F401 (registers the classes)
from mmcluspro.datasets.pictures import EDGES, INTERPOLATIONS, colour
from mmcluspro.datasets.published import published_datasets
from mmcluspro.features import CachedFeatures
from mmcluspro.fields import (
    MISSING,
    OTHERS,
    Left,
    Options,
    Part,
    Refusal,
    Source,
    choice,
    either,
    fields_of,
    flag,
    integer,
    items,
    needs,
    optional,
    record,
    shown,
    text,
)
from mmcluspro.models.classifier import CompositionalClassifier
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


FIELDS: dict[str, dict[str, Any]] = {
    **{kind.__name__: dict(split=text(100), allow_unknown=flag)
       for kind in published_datasets().values()},
    'ShapesCZSL': dict(version=text(100), seed=integer(0, 1 << 62)),
    'TableCZSL': dict(separator=text(10), allow_unknown=flag),
}


def describe_data(dataset: dict[str, Any]) -> dict[str, Any] | None:
    """The dataset of a config without its paths; None for one that is not ours."""
    kind = str(dataset.get('type')).removeprefix('mmcluspro.')
    if kind not in FIELDS:
        return None
    found = {name: dataset[name] for name in FIELDS[kind] if name in dataset}
    try:
        return check_data(dict(found, type=kind), 'data')
    except Refusal:
        return None


def check_data(value: Any, where: str) -> dict[str, Any]:
    """The field ``data``."""
    kind = choice(*FIELDS)(value.get('type') if isinstance(value, dict) else None, f'{where}.type')
    found = record(type=choice(kind), **FIELDS[kind])(value, where)
    needs(found, ('type', ), where)
    if any(sign in found.get('split', '') for sign in '/\\') or '..' in found.get('split', ''):
        raise Refusal(f'{where}.split is the name of a folder in the data, without a path')
    return found


SIDE = integer(1, 4096)
STEPS = dict(resize=('edge', 'backend', 'interpolation'), crop=(),
             fit=('fill', 'backend', 'interpolation'))
SILENT = ('PackInputs', 'PackMultiTaskInputs', 'Collect')


def check_preparation(value: Any) -> dict[str, Any]:
    """The field ``preparation``: which library decodes, and the steps in order."""
    step = record(
        step=choice(*STEPS), size=either(SIDE, items(SIDE, 2, 2)),
        edge=optional(choice(*EDGES)), fill=integer(0, 255), backend=choice(*INTERPOLATIONS),
        interpolation=choice(*sorted({name for names in INTERPOLATIONS.values()
                                      for name in names})))
    found = record(
        decoder=choice('cv2', 'pillow'), steps=items(step, 0, 8),
        background=optional(items(integer(0, 255), 3, 3)))(value, 'preparation')
    needs(found, ('decoder', 'steps'), 'preparation')
    for place, entry in enumerate(found['steps']):
        where = f'preparation.steps[{place}]'
        needs(entry, ('step', ), where)
        names = ('step', 'size', *STEPS[entry['step']])
        needs(entry, names, where)
        if len(entry) != len(names):
            raise Refusal(f'{where} has fields that a {entry["step"]} does not have')
        if isinstance(entry['size'], int) != (entry.get('edge') is not None):
            raise Refusal(f'{where}.size must be one number with an edge, two without')
        if 'backend' in entry and entry['interpolation'] not in INTERPOLATIONS[entry['backend']]:
            raise Refusal(f'{where}.interpolation must be one that {entry["backend"]} has, '
                          f'got {shown(entry["interpolation"])}')
    return found


def describe_pipeline(pipeline: Sequence[Any]) -> dict[str, Any]:
    """Turns a test pipeline of a config into plain numbers.

    Args:
        pipeline (Sequence[dict]): Steps of mmpretrain, as data.

    Raises:
        Refusal: For a step that plain numbers cannot say.
    """
    decoder, steps = 'cv2', []
    behind: dict[str, Any] = {}
    for place, transform in enumerate(pipeline):
        where = f'the test pipeline, step {place}'
        if not isinstance(transform, dict) or not isinstance(transform.get('type'), str):
            raise Refusal(f'{where} must be a dict with a type, got {shown(transform)}')
        fields = {key: value for key, value in transform.items() if key != 'type'}
        scope, _, kind = transform['type'].rpartition('.')
        if transform['type'] == 'mmcluspro.LoadPicture':
            found = _only(fields, where, decoder='cv2', background='white')
            decoder, background = found['decoder'], colour(found['background'])
            behind = dict(background=background and list(background))
            continue
        if transform['type'] == 'mmcluspro.PrepareImage':
            steps.extend(_only(fields, where, steps=[])['steps'])
            continue
        if scope not in ('', 'mmpretrain', 'mmcv') or kind not in (
                'LoadImageFromFile', 'ResizeEdge', 'Resize', 'CenterCrop', *SILENT):
            raise Refusal(f'{where} is {shown(transform["type"])}; resize and crop are known')
        if kind == 'LoadImageFromFile':
            decoder = _only(fields, where, imdecode_backend='cv2', backend_args=None,
                            color_type='color', to_float32=False)['imdecode_backend']
        elif kind == 'ResizeEdge':
            steps.append(_resize(_only(fields, where, scale=None, edge='short', backend='cv2',
                                       interpolation='bilinear')))
        elif kind == 'Resize':
            steps.append(_resize(_only(fields, where, scale=None, edge=None, backend='cv2',
                                       interpolation='bilinear', keep_ratio=False)))
        elif kind == 'CenterCrop':
            found = _only(fields, where, crop_size=None, auto_pad=False)
            steps.append(dict(step='crop', size=_two(found['crop_size'])))
    return check_preparation(dict(decoder=decoder, steps=steps, **behind))


def _only(fields: dict[str, Any], where: str, **known: Any) -> dict[str, Any]:
    """Fields with their defaults; one that is unknown, or may not be changed, is refused."""
    fixed = ('backend_args', 'color_type', 'to_float32', 'keep_ratio', 'auto_pad')
    for name, value in fields.items():
        if name not in known or name in fixed and value != known[name]:
            raise Refusal(f'{where} has {name}={shown(value)}, which plain numbers cannot say')
    return {**known, **fields}


def _resize(fields: dict[str, Any]) -> dict[str, Any]:
    size = fields['scale'] if fields['edge'] else _two(fields['scale'])
    return dict(step='resize', size=size, edge=fields['edge'], backend=fields['backend'],
                interpolation=fields['interpolation'])


def _two(size: Any) -> Any:
    return [size, size] if isinstance(size, int) else size


FORMAT = 1


def describe(config: Mapping[str, Any]) -> dict[str, Any]:
    """Describes the model, the preparation of pictures and the data of a config.

    Args:
        config (Mapping): All fields of the config, as data.

    Returns:
        dict: Plain data, which :func:`checked` takes. ``preparation`` is missing where the test
        pipeline does more than resize and crop, and ``data`` where the dataset is not ours.

    Raises:
        Refusal: When the model cannot be described.
    """
    model = _as_data(config.get('model'), config.get('default_scope'))
    if not isinstance(model, dict) or not model.get('head'):
        raise Refusal('the config has no field model with a head')
    found: dict[str, Any] = dict(format=FORMAT, model=_model(model))
    try:
        found['preparation'] = describe_pipeline(pipeline_of(config))
    except Refusal as refusal:
        found['no_preparation'] = str(refusal)
    data = _data(config)
    return dict(found, data=data) if data else found


def pipeline_of(config: Mapping[str, Any]) -> list[Any]:
    """The test pipeline of a config, as data."""
    loader = config.get('test_dataloader') or {}
    dataset = loader.get('dataset') if isinstance(loader, Mapping) else None
    pipeline = dataset.get('pipeline') if isinstance(dataset, Mapping) else None
    pipeline = config.get('test_pipeline') if pipeline is None else pipeline
    if not isinstance(pipeline, (list, tuple)):
        raise Refusal('the config has neither test_dataloader.dataset.pipeline nor test_pipeline, '
                      'which say how pictures are prepared')
    return [_as_data(step) for step in pipeline]


def _model(model: dict[str, Any]) -> dict[str, Any]:
    if class_named(str(model.get('type'))) is not CompositionalClassifier:
        raise Refusal(f'model.type is {shown(model.get("type"))}; '
                      "'mmcluspro.CompositionalClassifier' is known")
    pixels = model.get('data_preprocessor') or {}
    kind = class_named(str(pixels.get('type', 'ClsDataPreprocessor')))
    if kind is None or not issubclass(kind, ClsDataPreprocessor):
        raise Refusal(f'model.data_preprocessor.type is {shown(pixels.get("type"))}; '
                      "'ClsDataPreprocessor' is known")
    return dict(describe_fields(model, CompositionalClassifier),
                pixels=describe_fields(pixels, ClsDataPreprocessor))


def _data(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Name of the dataset, without a path."""
    loader = config.get('test_dataloader') or {}
    dataset = _as_data(loader.get('dataset')) if isinstance(loader, Mapping) else None
    return describe_data(dataset) if isinstance(dataset, dict) else None


def _as_data(value: Any, scope: str | None = None) -> Any:
    """Dicts and lists without the classes of mmengine; anything else is refused.

    Args:
        value (Any): A part of the config.
        scope (str, optional): The config's default scope, which is written out.
    """
    if isinstance(value, Mapping):
        found = {str(key): _as_data(entry, scope) for key, entry in value.items()}
        kind = found.get('type')
        if isinstance(kind, str) and scope and scope not in DEFAULT_SCOPES and '.' not in kind and (
                class_named(f'{scope}.{kind}')):
            found['type'] = f'{scope}.{kind}'
        return found
    if isinstance(value, (list, tuple)):
        return [_as_data(entry, scope) for entry in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise Refusal(f'{shown(value)} is not plain data')


def checked(description: Any, imports: tuple[str, ...] = ()) -> dict[str, Any]:
    """A description that holds nothing but what our classes declare.

    Args:
        description (Any): What a file holds.
        imports (tuple[str]): Modules that the user named.
    """
    def model(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Refusal(f'{where} must be a dict, got {shown(value)}')
        needs(value, ('pixels', ), where)
        parts = {name: entry for name, entry in value.items() if name != 'pixels'}
        return dict(
            check_fields(parts, where, CompositionalClassifier, imports),
            pixels=check_fields(value['pixels'], f'{where}.pixels', ClsDataPreprocessor, ()))

    try:
        found = record(
            format=integer(1, FORMAT), model=lambda value, where: model(value, 'model'),
            preparation=lambda value, _: check_preparation(value), no_preparation=text(),
            data=check_data)(description, 'description')
        needs(found, ('format', 'model'), 'description')
    except RecursionError:
        raise Refusal('description is nested too deeply') from None
    return found
