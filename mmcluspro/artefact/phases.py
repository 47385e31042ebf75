"""The images of a phase, as a test sees them."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmengine.config import Config
from mmengine.registry import DefaultScope
from torch import nn

from mmcluspro.datasets import CZSLDataset
from mmcluspro.datasets.layout import PHASES
from mmcluspro.features.cached import CachedFeatures
from mmcluspro.registry import DATASETS


def phase_dataset(network: nn.Module, spec: Mapping[str, Any], phase: str,
                  config: Config | None = None, **options: Any) -> CZSLDataset:
    """The images of a phase without augmentation, even in training.

    The description names a dataset of this package and the preparation of images; the user names
    the folder. Nothing else of a file is built.

    Args:
        network (nn.Module): Says by its parts whether it reads stored features.
        spec (Mapping): Description of the model.
        phase (str): 'train', 'val' or 'test'.
        config (Config, optional): The user's own config, whose datasets are built instead.
            Defaults to None.
        **options: Fields of the dataset, such as ``data_root``.
    """
    if phase not in PHASES:
        raise ValueError(f"phase must be 'train', 'val' or 'test', got {phase!r}.")
    fields = _of_spec(spec) if config is None else _of_config(config, phase)
    fields.update(options, phase=phase, test_mode=True)
    if 'features' in fields and not any(
            isinstance(part, CachedFeatures) for part in network.modules()):
        del fields['features']  # of the training: this model reads images
    kind = DATASETS.get(fields['type'])
    fields.setdefault('data_root', getattr(kind, 'ROOT', ''))
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        return DATASETS.build(fields)


def _of_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    data, prepared = (spec.get(name) for name in ('data', 'preparation'))
    if data is None or prepared is None:
        raise ValueError(
            'The checkpoint names no dataset of mmcluspro'
            + ('' if data is None else ' whose pictures are resized and cropped only')
            + ': its images are not known. Give the config file of the training with --config.')
    return dict(data, type=f'mmcluspro.{data["type"]}', pipeline=[
        *([] if data['type'] == 'ShapesCZSL' else [
            dict(type='mmcluspro.LoadPicture', decoder=prepared['decoder'],
                 background=prepared.get('background', 'white') or 'none')]),
        dict(type='mmcluspro.PrepareImage', steps=prepared['steps']),
        dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label'])])


def _of_config(config: Config, phase: str) -> dict[str, Any]:
    fields = {}
    for name in (phase, 'test'):
        try:
            fields[name] = config[f'{name}_dataloader'].dataset
        except (KeyError, AttributeError, TypeError):
            raise ValueError(f'The config has no {name}_dataloader.dataset: its images are not '
                             'known.') from None
    return dict(fields[phase], pipeline=fields['test'].pipeline)
