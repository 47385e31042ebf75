"""Loads a model from a checkpoint, without its config file and data."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner.checkpoint import load_state_dict

from mmcluspro.datasets import CompositionSpace
from mmcluspro.description import (
    Refusal,
    build_model,
    checked,
    describe,
    given_weights,
    import_modules,
    predicting,
)
from mmcluspro.engine.launch import read_config
from mmcluspro.errors import FileError, sentence_of
from mmcluspro.models.classifiers import CompositionalClassifier
from mmcluspro.registry import MODELS

from .checkpoint_file import CheckpointFile, read_checkpoint
from .config_text import parse_config

REFUSED = ('Nothing of the file was built. Give your own config file with --config FILE '
           '(config=…), or a file from another source.')
UNFIT = ('Give the file as training wrote it; if its description is not that of its weights, give '
         'your config with --config FILE (config=…).')


def load_model(checkpoint: str | Path, device: str | torch.device = 'cpu',
               config: str | Path | Config | None = None, imports: Sequence[str] = (),
               weights: str | Path | Mapping[str, str | Path] | None = None
               ) -> CompositionalClassifier:
    """Builds the model of a checkpoint from the checkpoint alone.

    The file contains only data: tensors, and a description with a closed schema
        (:mod:`mmcluspro.description`). No code from it is executed. It can name only classes of
        this package, and no path or address to open.

    Args:
        checkpoint (str | Path): File or address of a checkpoint that ``tools/train.py`` wrote.
        device (str | torch.device): Device of the model. Defaults to 'cpu'.
        config (str | Path | Config, optional): Your own config, which is built instead of the
            description, for parts that the description cannot name. Defaults to None.
        imports (Sequence[str]): Your modules whose classes the description may name. Defaults to
            ().
        weights (str | Path | Mapping, optional): Weights of the frozen towers, if training read
            them from local files: one file for both, or a dict with 'backbone', 'text' and 'words'.
            Defaults to None.

    Returns:
        CompositionalClassifier: The model in eval mode, with the attributes ``description`` (what
            was built), ``cfg`` (your config, or None), ``meta`` (of the checkpoint) and ``space``
            (the pairs of all phases).
    """
    modules, files = import_modules(imports), given_weights(weights)
    file = read_checkpoint(checkpoint)
    space = file.space()
    if config is None:
        description, cfg = described(file, modules), None
        model = build_model(description['model'], space, file.state, file.name, files)
    else:
        cfg = config if isinstance(config, Config) else read_config(config)
        description, model = _described_or_empty(cfg), _build_config(cfg, space, file)
    state = predicting(file.state, model)
    try:
        load_state_dict(model, state, strict=False, logger='silent')
    except FileError:
        raise
    except (ValueError, RuntimeError, TypeError) as error:
        raise FileError(file.name, sentence_of(error), UNFIT, 'state_dict') from error
    model.cfg, model.meta, model.description = cfg, file.meta, description
    return model.to(device).eval()


def described(file: CheckpointFile, imports: tuple[str, ...] = ()) -> dict[str, Any]:
    """The description of a checkpoint, checked; of an old file, from the text of its config."""
    try:
        if 'description' in file.meta:
            return checked(file.meta['description'], imports)
        return checked(describe(parse_config(file.field('cfg'), file.name)), imports)
    except Refusal as refusal:
        raise FileError(file.name, f'the description was refused: {refusal}', REFUSED,
                        'meta') from None


def _described_or_empty(cfg: Config) -> dict[str, Any]:
    """Describes the user's config as far as plain data can; the rest is built from it."""
    try:
        return describe(cfg)
    except Refusal:
        return {}


def _build_config(cfg: Config, space: CompositionSpace, file: CheckpointFile) -> Any:
    """Builds the user's own config, with the saved labels in the place of the data folder."""
    if not cfg.get('model', {}).get('head'):
        raise ValueError(f'The config for {file.name} has no field model with a head.')
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        # mmpretrain writes defaults into what it is given.
        return MODELS.build(dict(deepcopy(cfg.model), space=space.to_dict()))
