"""The config field ``data``, which names the data of a config in one place."""
from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

from mmengine.config import Config, ConfigDict

from mmcluspro.registry import DATASETS

from .clip_field import place_clip
from .messages import ConfigError

PHASES = ('train', 'val', 'test')
OF_A_PHASE = ('phase', 'pipeline')


def place_data(cfg: Config | ConfigDict) -> None:
    """Puts the field ``data`` into ``model.space``, ``space`` and the datasets of the loaders.

    With a ``type``, ``data`` replaces the data of the config; without one it changes single fields
    of it, such as ``data_root``. Other fields of a dataset (``phase``, ``pipeline``, ``indices`` …)
    stay. What the labels do not depend on, such as ``check_images``, goes to the datasets only.
    The field itself is taken out.

    Args:
        cfg (Config | ConfigDict): Changed in place.
    """
    data = cfg.pop('data', None)
    if data is None:
        return
    if not isinstance(data, dict):
        raise ConfigError(
            "The config field data must be a dict such as dict(type='mmcluspro.TableCZSL', "
            f"data_root='photos', table='table.csv'), got {data!r}.")
    misplaced = [name for name in OF_A_PHASE if name in data]
    if misplaced:
        raise ConfigError(
            f'The config field data is the same for all phases; {misplaced[0]} belongs '
            'to train_dataloader.dataset, val_dataloader.dataset and test_dataloader.dataset.')
    before = cfg.model.get('space') or {}
    after: dict[str, Any] = dict(data) if 'type' in data else {**before, **data}
    for phase in PHASES:
        loader = cfg.get(f'{phase}_dataloader')
        if loader is not None:
            loader.dataset = _replace(loader.dataset, before, after)
    cfg.model.space = _of_the_labels(after)
    if 'space' in cfg:
        cfg.space = _of_the_labels(after)


def merge_options(cfg: Config, options: Mapping[str, Any]) -> None:
    """Merges options of the command line; ``data`` and ``clip`` first: others can refine them.

    Args:
        cfg (Config): Changed in place.
        options (Mapping): Values by dotted key.
    """
    ours = {key: value for key, value in options.items()
            if key.partition('.')[0] in ('data', 'clip')}
    cfg.merge_from_dict(ours)
    place_data(cfg)
    place_clip(cfg)
    cfg.merge_from_dict({key: value for key, value in options.items() if key not in ours})


def _of_the_labels(data: dict[str, Any]) -> ConfigDict:
    """The fields that ``make_space`` of the dataset takes."""
    kind = data.get('type')
    dataset = DATASETS.get(kind) if isinstance(kind, str) else kind
    make_space = getattr(dataset, 'make_space', None)
    if make_space is None:
        return ConfigDict(data)  # building the space says what is wrong
    parameters = signature(make_space).parameters
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return ConfigDict(data)
    return ConfigDict({name: value for name, value in data.items()
                       if name == 'type' or name in parameters})


def _replace(dataset: ConfigDict, before: dict[str, Any], after: dict[str, Any]) -> ConfigDict:
    if 'dataset' in dataset:  # a wrapper such as RepeatDataset
        return ConfigDict(dataset, dataset=_replace(dataset.dataset, before, after))
    kept = {name: value for name, value in dataset.items() if name not in before}
    return ConfigDict(kept, **after)
