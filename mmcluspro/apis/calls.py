"""Functions for a notebook."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config

from mmcluspro.artefact import Predictions, TrainedModel
from mmcluspro.engine.launch import read_config


def load(path: str | Path, device: str | torch.device | None = None,
         config: str | Path | Config | None = None, imports: Sequence[str] = (),
         weights: str | Path | Mapping[str, str | Path] | None = None,
         background: str | Sequence[int] | None = None) -> TrainedModel:
    """Loads a trained model from its file alone.

    Args:
        path (str | Path): File or address of a checkpoint that training wrote; nothing else is
            needed.
        device (str | torch.device, optional): Defaults to None: a GPU if there is one.
        config (str | Path | Config, optional): Your own config, which is built instead of the
            description, for parts that the description cannot name. Defaults to None.
        imports (Sequence[str]): As in :meth:`TrainedModel.load`, like the other arguments.
    """
    if config is not None and not isinstance(config, Config):
        config = read_config(config)
    return TrainedModel.load(path, device, config, imports, weights, background)


def predict(path: str | Path, inputs: Any, **options: Any) -> Predictions:
    """Loads a trained model and predicts the attribute and the object of images.

    For several calls, :func:`load` the model once.

    Args:
        path (str | Path): A file that training wrote.
        inputs: Images, as in :meth:`TrainedModel.stream`.
        **options: Arguments of :func:`load` (``device``, ``config``, ``imports``, ``weights``,
            ``background``) and of :meth:`TrainedModel.stream`.

    Examples:
        >>> import mmcluspro
        >>> mmcluspro.predict('best_czsl_auc_epoch_16.pth', 'photos/', top_k=1).to_frame()
    """
    own = {name: options.pop(name) for name in ('device', 'config', 'imports', 'weights',
                                                'background') if name in options}
    return load(path, **own).predict(inputs, **options)
