"""Checkpoints with their frozen towers inside, which answer on any machine."""
from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from mmcluspro.models.sources import DEFAULT, DINO_FILES, FILE, TINY, tag_activation
from mmcluspro.models.state import restorable_keys
from mmcluspro.utils.files import atomic_path
from mmcluspro.utils.safe_load import load_from_local

from .trained import TrainedModel


def with_towers(source: str | Path, content: dict[str, Any]) -> dict[str, Any]:
    """The content of a checkpoint with its frozen towers, in half precision.

    Args:
        source (str | Path): The checkpoint, which this machine can load.
        content (dict): What it holds, or a part of that.
    """
    model = TrainedModel.load(source, 'cpu')
    network, description = model.network, deepcopy(dict(model.spec))
    _hold(description['model'])
    towers = {key: weight.detach().half() for key, weight in restorable_keys(network).items()}
    meta = {key: value for key, value in content['meta'].items() if key != 'towers'}
    towers |= {key: value for key, value in network.state_dict().items()
               if key.startswith(('backbone.', 'head.text.'))}
    return dict(content, meta=dict(meta, description=description),
                state_dict={**towers, **content['state_dict']})


def make_standalone(path: str | Path) -> None:
    """Puts its towers into a checkpoint."""
    content = with_towers(path, load_from_local(str(path), 'cpu'))
    with atomic_path(path) as part:
        torch.save(content, part)


def _hold(part: Any) -> None:
    """Says of each tower in a description that its weights are in the file."""
    if isinstance(part, list):
        for entry in part:
            _hold(entry)
    if not isinstance(part, dict):
        return
    for value in part.values():
        _hold(value)
    source = part.get('pretrained')
    if source not in (None, TINY, FILE):
        if source not in DINO_FILES and part.get('quickgelu') is None:
            part['quickgelu'] = tag_activation(part.get('arch', DEFAULT), source)
        part['pretrained'] = FILE
