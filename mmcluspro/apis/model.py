"""From a checkpoint to a model that predicts: no config file, no data folder."""
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner.checkpoint import CheckpointLoader, load_state_dict

from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.launch import read_config
from mmcluspro.models.classifiers import CompositionalClassifier
from mmcluspro.registry import MODELS

from .config_text import check_types, parse_config


def load_model(checkpoint: str | Path, device: str | torch.device = 'cpu',
               config: str | Path | Config | None = None) -> CompositionalClassifier:
    """Builds the model of a checkpoint from the checkpoint alone.

    Nothing of the file is executed: tensors, plain data and the text of its
    config are read (:mod:`mmcluspro.apis.config_text`).

    Args:
        checkpoint (str | Path): File or address of a checkpoint that
            ``tools/train.py`` wrote.
        device (str | torch.device): Where to put it. Defaults to 'cpu'.
        config (str | Path | Config, optional): Used instead of the config
            inside, for a file of yours with parts that only you can vouch for.
            Defaults to None.

    Returns:
        CompositionalClassifier: In eval mode. ``cfg`` holds its config,
        ``meta`` the checkpoint's meta, ``space`` the pairs of all phases.
    """
    name = str(checkpoint)
    state = CheckpointLoader.load_checkpoint(name, map_location='cpu', logger='silent')
    meta = state.get('meta') if isinstance(state, dict) else None
    if not isinstance(meta, dict) or 'state_dict' not in state:
        raise ValueError(
            f'{name} holds no state_dict and meta: it is no checkpoint of mmcluspro. Give a file '
            'that training wrote, such as work_dirs/<config>/best_czsl_auc_epoch_20.pth.')
    if config is None:
        cfg = parse_config(_field(meta, 'cfg', name), name)
    else:
        cfg = config if isinstance(config, Config) else read_config(config)
    if not cfg.get('model', {}).get('head'):
        raise ValueError(f'The config of {name} has no field model with a head.')
    _adapt_config(cfg, saved_space(meta, name), state['state_dict'])
    if config is None:
        check_types(cfg.model, name)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model: Any = MODELS.build(cfg.model)
    load_state_dict(model, state['state_dict'], strict=False, logger='silent')
    model.cfg, model.meta = cfg, meta
    return model.to(device).eval()


def saved_space(meta: dict, name: str) -> CompositionSpace:
    """The space of a checkpoint: the pairs of all phases, which of them are seen.

    Args:
        meta (dict): Its ``meta``.
        name (str): What messages call it.
    """
    dataset = _field(meta, 'dataset_meta', name)
    train = CompositionSpace.from_dict(_field(dataset, 'space', name))
    known = {tuple(pair) for pair in dataset.get('known_pairs', ())}
    seen = {tuple(pair) for pair in train.train_pairs.tolist()}
    pairs = sorted(known | {tuple(pair) for pair in train.pairs.tolist()})
    return CompositionSpace(train.attributes, train.objects, pairs,
                            [pair in seen for pair in pairs])


def _field(table: dict, key: str, name: str) -> Any:
    if not table.get(key):
        raise ValueError(
            f'{name} has no meta field {key!r}, so that it cannot predict alone. Files that '
            'tools/train.py wrote have it; for others give the config and train again.')
    return table[key]


def _adapt_config(cfg: Config, space: CompositionSpace, weights: dict) -> None:
    """Puts the saved labels in the place of the data folder they came from."""
    cfg.model.space = space.to_dict()
    # A published file has no prototypes: prediction does not know of them.
    if cfg.model.head.get('bank') and not any('head.banks.' in key for key in weights):
        cfg.model.head.branches = ()
