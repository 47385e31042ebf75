"""From a config to a description, and what of a description is accepted.

The config is data here, never built from. What only training needs is left out; any other class or
field that is not declared is refused, because leaving it out could change predictions.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmpretrain.models.utils import ClsDataPreprocessor

from mmcluspro.fields import Refusal, integer, needs, record, shown, text
from mmcluspro.models.classifier import CompositionalClassifier

from .data import check_data, describe_data
from .parts import DEFAULT_SCOPES, check_fields, class_named, describe_fields
from .preparation import check_preparation, describe_pipeline

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
    model = _plain(config.get('model'), config.get('default_scope'))
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
    dataset = _plain(loader.get('dataset')) if isinstance(loader, Mapping) else None
    return describe_data(dataset) if isinstance(dataset, dict) else None


def _plain(value: Any, scope: str | None = None) -> Any:
    """Dicts and lists without the classes of mmengine; anything else is refused.

    Args:
        value (Any): A part of the config.
        scope (str, optional): The config's default scope, which is written out.
    """
    if isinstance(value, Mapping):
        found = {str(key): _plain(entry, scope) for key, entry in value.items()}
        kind = found.get('type')
        if isinstance(kind, str) and scope and scope not in DEFAULT_SCOPES and '.' not in kind and (
                class_named(f'{scope}.{kind}')):
            found['type'] = f'{scope}.{kind}'
        return found
    if isinstance(value, (list, tuple)):
        return [_plain(entry, scope) for entry in value]
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
