"""Files to share: what prediction needs of a trained model, and nothing else of the run."""
from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmcluspro.errors import FileError, reason_of
from mmcluspro.evaluation.calibration import chosen_meta
from mmcluspro.models.sources import DEFAULT, DINO_FILES, FILE, TINY, tag_activation
from mmcluspro.models.state import restorable_keys, training_only_prefixes
from mmcluspro.models.text import WordTableText
from mmcluspro.utils.digest import sha256
from mmcluspro.utils.files import atomic_path, writable
from mmcluspro.utils.safe_load import SUFFIX, load_from_local, tensor_bytes, tensors_of

from .hub import write_folder
from .load import TRAIN_AGAIN, CheckpointFile, check_state
from .trained import TrainedModel

KEPT_META = ('description', 'dataset_meta', 'calibration', 'epoch', 'iter', 'mmengine_version',
             'towers', 'word_vectors', 'familiar')


def save(model: TrainedModel, path: str | Path, standalone: bool = False,
         numbers: Mapping[str, float] | None = None, licence: str | None = None) -> Path:
    """Writes a model, see :meth:`TrainedModel.save`."""
    if not model.spec:
        raise ValueError(f'{model.name} cannot be saved: plain data cannot describe it. Keep its '
                         'checkpoint and its config.')
    folder, path = str(path).endswith(('/', os.sep)), Path(path)
    if folder or path.is_dir():
        return write_folder(model, path, standalone, numbers, licence)
    if path.suffix != SUFFIX:
        raise ValueError(f'A model is saved in a file that ends with {SUFFIX}, or in a folder/ '
                         f'with a card, got {path}.')
    if numbers or licence:
        raise ValueError('numbers and licence stand on the card of a folder: save to '
                         f"'{path.stem}/'.")
    content = content_of(model)
    return write_file(with_towers(model, content) if standalone else content, path)


def content_of(model: TrainedModel) -> dict[str, Any]:
    """What a file of the model holds: ``meta`` and ``state_dict``."""
    network = model.network
    words = word_vectors(network)
    meta = dict(dict(description=model.spec, dataset_meta=dict(space=model.space.to_dict()),
                     calibration=chosen_meta(model.chosen)),
                **dict(word_vectors=words) if words else {},
                **{key: model.facts[key] for key in KEPT_META if key in model.facts})
    prefixes = training_only_prefixes(network)
    return dict(meta=meta, state_dict={key: value for key, value in model.weights().items()
                                       if not key.startswith(prefixes)})


def word_vectors(network: Any) -> dict[str, Any]:
    """Common words with their vectors, in half precision, if the text side keeps them."""
    text = getattr(network.head, 'text', None)
    words: Mapping[str, np.ndarray] = (
        text.kept_words() if isinstance(text, WordTableText) else {})
    return dict(words='\n'.join(words), vectors=torch.from_numpy(
        np.stack(list(words.values())).astype(np.float16))) if words else {}


def publish(source: str | Path, target: str | Path, standalone: bool = False) -> Path:
    """Writes a file with bit-identical predictions, without the state of training.

    Optimizer, schedule, history, the config with its paths, and everything that only training
    needs, such as prototypes of a head that does not score with them, are left out. The file is
    enough to predict. No code from the source is executed, and nothing is built unless
    ``standalone``.

    Args:
        source (str | Path): A checkpoint of ``tools/train.py``.
        target (str | Path): Name of the new file, or a folder, in which it gets the name of the
            source. The first eight hex digits of the SHA-256 are added to the name.
        standalone (bool): Put the frozen towers into the file, in half precision. Defaults to
            False.

    Returns:
        Path: The new file.
    """
    content = published(load_from_local(str(source), 'cpu'), str(source))
    if standalone:
        content = with_towers(TrainedModel.load(source, 'cpu'), content)
    path = Path(target)
    if path.is_dir() or str(target).endswith(os.sep):
        path = path / Path(source).name
    return write_file(content, path, named=True)


def published(checkpoint: Any, name: str) -> dict[str, Any]:
    """The content of a published checkpoint.

    Args:
        checkpoint (Any): As ``safe_load`` returns it.
        name (str): Name of the checkpoint for messages.
    """
    meta = checkpoint.get('meta') if isinstance(checkpoint, dict) else None
    if not isinstance(meta, dict) or not isinstance(checkpoint.get('state_dict'), dict):
        raise ValueError(f'{name} holds no state_dict and meta: it is not a checkpoint of '
                         f'mmcluspro. {TRAIN_AGAIN}')
    file = CheckpointFile(name, checkpoint['state_dict'], meta)
    for key in ('description', 'dataset_meta'):
        file.field(key)
    check_state(file.state, name)
    found = meta.get('training_only')
    prefixes = tuple(part for part in found if isinstance(part, str) and part) if isinstance(
        found, (list, tuple)) else ()
    kept = {key: meta[key] for key in KEPT_META if key in meta}
    try:
        check_state(dict(tensors_of(kept)), name, 'meta')
        json.dumps(kept, default=_stands_for)
    except (TypeError, RecursionError) as error:
        raise FileError(name, f'it holds something else than plain data ({reason_of(error)})',
                        TRAIN_AGAIN, 'meta') from None
    return dict(meta=kept,
                state_dict={key: value for key, value in file.state.items()
                            if not key.startswith(prefixes)})


def _stands_for(value: Any) -> None:
    if not isinstance(value, (Tensor, np.generic)):
        raise TypeError(f'a {type(value).__name__}')


def write_file(content: Mapping[str, Any], path: Path, named: bool = False) -> Path:
    """Writes a safetensors file.

    Args:
        content (Mapping): ``meta`` and ``state_dict``.
        path (Path): The file; its folder is made.
        named (bool): Add the first digits of its SHA-256 to the name. Defaults to False.
    """
    data = tensor_bytes(content['meta'], content['state_dict'])
    if named:
        stem = re.sub(r'\.(pth|safetensors)$', '', path.name)
        path = path.with_name(f'{stem}-{sha256(data, digits=8)}{SUFFIX}')
    with writable(path) as part:
        part.write_bytes(data)
    return path


def with_towers(model: TrainedModel, content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a checkpoint with its frozen towers, in half precision.

    Args:
        model (TrainedModel): Built from it.
        content (Mapping): What the file holds, or a part of that.
    """
    model.unfold()
    network, description = model.network, deepcopy(dict(model.spec))
    _hold(description['model'])
    towers: dict[str, Tensor] = {
        key: weight.detach().half() for key, weight in restorable_keys(network).items()}
    meta = {key: value for key, value in content['meta'].items() if key != 'towers'}
    if 'tokenizer' in content['meta'].get('towers', {}):  # the only one that is not in the file
        meta['towers'] = dict(tokenizer=content['meta']['towers']['tokenizer'])
    towers |= {key: value for key, value in network.state_dict().items()
               if key.startswith(('backbone.', 'head.text.'))}
    return dict(content, meta=dict(meta, description=description),
                state_dict={**towers, **content['state_dict']})


def make_standalone(path: str | Path) -> None:
    """Puts its towers into a checkpoint."""
    content = with_towers(TrainedModel.load(path, 'cpu'), load_from_local(str(path), 'cpu'))
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
