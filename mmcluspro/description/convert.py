"""From a config to a description: at saving, and for files that were written without one.

The config is data here, never built from. What only training needs is left out; a class or field
that the schema does not know is refused, because leaving it out could change predictions.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmcluspro.registry import MODELS

from . import clip_zoo_schema as clip_zoo
from .defaults import with_defaults
from .fields import Refusal, shown
from .preparation import describe_pipeline
from .schema import FORMAT, Schema
from .weights import clip_source, dino_source, file_source
from .zoo_schema import TRAINING_FIELDS

# Fields by class that change nothing in prediction.
ANYWHERE = ('init_cfg', '_scope_')
TRAINING: dict[str, tuple[str, ...]] = {
    'CompositionalClassifier': ('space', 'full_state', 'micro_batch', 'channels_last', 'train_cfg',
                                'pretrained'),
    'CLIPVision': ('with_cp', ),
    'DINO': ('drop_rate', 'drop_path_rate', 'frozen_stages'),
    'DINOv2': ('drop_rate', 'drop_path_rate', 'frozen_stages'),
    'VisionTransformer': ('drop_rate', 'drop_path_rate', 'frozen_stages'),
    'ResNet': ('frozen_stages', 'norm_eval', 'with_cp', 'zero_init_residual', 'drop_path_rate'),
    'LoRA': ('drop_rate', ),
    'Bottleneck': ('dropout', ),
    'PrimitiveAdapter': ('dropout', ),
    'ThreePathHead': ('loss_weights', 'losses', 'space'),
    'ClusProHead': ('loss_weights', 'losses', 'space', 'loss_pcl', 'loss_pdl'),
    'ClusProPlusHead': ('loss_weights', 'losses', 'space', 'loss_pcl', 'loss_pdl', 'pair_decay'),
    'TroikaHead': ('loss_weights', 'losses', 'space', 'with_cp', 'chunk_size'),
    'CLIPText': ('with_cp', 'learn_temperature', 'chunk_size'),
    'SoftPrompt': ('attr_dropout', ),
    'WordVectorText': ('path', 'dropout', 'learn_vectors', 'learn_temperature', 'chunk_size'),
    'bank': ('type', 'momentum', 'momentum_unit', 'correct_only', 'normalize_mean', 'assigner',
             'queue_size', 'single', 'missing', 'usage_decay', 'dead_share', 'reseed',
             'max_prototypes', 'seed'),
    'traction': ('type', 'dropout'),
    'pixels': ('type', 'num_classes', 'to_onehot', 'batch_augments'),
    **TRAINING_FIELDS,
    **clip_zoo.TRAINING_FIELDS,
}
# Dotted names of ``readable``, and the rule that each is.
READABLE = {f'mmcluspro.datasets.{module}{name}': rule for module in ('', 'names.')
            for name, rule in (('readable_name', 'words'), ('dotted_name', 'dots'))}


def describe(config: Mapping[str, Any]) -> dict[str, Any]:
    """Describes the model, the preparation of pictures and the data of a config.

    Args:
        config (Mapping): All fields of the config, as data.

    Returns:
        dict: Plain data, which :class:`Schema` takes. ``preparation`` is missing where the test
        pipeline does more than resize and crop, and ``data`` where the dataset is not ours.

    Raises:
        Refusal: When the model cannot be described.
    """
    model = _plain(config.get('model'))
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
    return [_plain(step) for step in pipeline]


def _model(model: dict[str, Any]) -> dict[str, Any]:
    kind = _kind(model)
    if kind != 'CompositionalClassifier':
        raise Refusal(f'model.type is {shown(model.get("type"))}; '
                      "'mmcluspro.CompositionalClassifier' is known")
    fields = _kept(model, kind)
    pixels = fields.pop('data_preprocessor', None) or {}
    if isinstance(pixels, dict) and _kind(pixels) not in (
            '', 'ClsDataPreprocessor', 'FeaturePreprocessor'):
        raise Refusal(f'model.data_preprocessor.type is {shown(pixels.get("type"))}; '
                      "'ClsDataPreprocessor' is known")
    return dict({name: _part(value) for name, value in fields.items() if name != 'type'},
                pixels=_kept(pixels, 'pixels'))


def _part(value: Any) -> Any:
    """A part with the names of the schema; other values as they are."""
    if isinstance(value, list):
        return [_part(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    kind = _kind(value)
    if kind == 'CachedFeatures':  # features on disk of the backbone that it holds
        return _part(value.get('backbone'))
    # Of readable, the keys are names of the data.
    found = {name: entry if name == 'readable' else _part(entry)
             for name, entry in _kept(value, kind).items() if name != 'type'}
    if kind:
        found['type'] = kind
    for name in ('bank', 'traction'):
        if isinstance(found.get(name), dict):
            found[name] = _kept(found[name], name)
    if kind in clip_zoo.TOWERS:
        found['pretrained'] = clip_source(found.get('arch', 'ViT-L-14'), found.get('pretrained'))
    if kind == 'ProjectedBackbone':
        found['pretrained'] = file_source(found.get('pretrained'))
    if kind in ('DINO', 'DINOv2'):
        found['pretrained'] = dino_source(found.get('pretrained'))
    found = with_defaults(found)
    if isinstance(found.get('readable'), str) and found['readable'] in READABLE:
        found['readable'] = READABLE[found['readable']]
    return found


def _kept(value: Any, kind: str) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: entry for name, entry in value.items()
            if name not in (*ANYWHERE, *_training_fields(kind))}


def _training_fields(kind: str) -> tuple[str, ...]:
    """Fields of a class, or of ours that a class of another package derives from."""
    if kind in TRAINING:
        return TRAINING[kind]
    bases = getattr(MODELS.module_dict.get(kind), '__mro__', ())
    return next((TRAINING[base.__name__] for base in bases if base.__name__ in TRAINING
                 and base.__module__.startswith('mmcluspro.')), ())


def _kind(value: dict[str, Any]) -> str:
    """The class without its package: ours, or one of mmpretrain's that the schema knows."""
    kind = value.get('type', '')
    if not isinstance(kind, str):
        raise Refusal(f'type must be text, got {shown(kind)}')
    for scope in ('mmcluspro.', 'mmpretrain.'):
        if kind.startswith(scope) and '.' not in kind.removeprefix(scope):
            return kind.removeprefix(scope)
    return kind


def _data(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Name of the dataset, without a path."""
    from .data import describe_data
    loader = config.get('test_dataloader') or {}
    dataset = _plain(loader.get('dataset')) if isinstance(loader, Mapping) else None
    return describe_data(dataset, _kind) if isinstance(dataset, dict) else None


def _plain(value: Any) -> Any:
    """Dicts and lists without the classes of mmengine; anything else is refused."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise Refusal(f'{shown(value)} is not plain data')


def checked(description: Any, imports: tuple[str, ...] = ()) -> dict[str, Any]:
    """A description that holds nothing but what the schema knows.

    Args:
        description (Any): What a file holds.
        imports (tuple[str]): Modules that the user named.
    """
    from .data import check_data
    from .fields import integer, needs, record, text
    from .preparation import check_preparation
    try:
        found = record(
            format=integer(1, FORMAT), model=lambda value, _: Schema(imports).model(value),
            preparation=lambda value, _: check_preparation(value), no_preparation=text(),
            data=check_data)(description, 'description')
        needs(found, ('format', 'model'), 'description')
    except RecursionError:
        raise Refusal('description is nested too deeply') from None
    return found
