"""The content of a checkpoint, checked: types, labels, calibration, finite weights."""
from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mmcluspro.datasets import CompositionSpace
from mmcluspro.errors import FileError, shown
from mmcluspro.evaluation.calibration import read_chosen
from mmcluspro.fields import PLACES, flag, integer, items, text
from mmcluspro.utils.safe_load import load_checkpoint, non_finite_tensors

from .familiar import Familiar
from .hub import model_file
from .spec import Refusal, checked

TRAIN_AGAIN = ('Give a file that training wrote, such as '
               'work_dirs/<config>/best_czsl_auc_epoch_16.pth.')
REFUSED = ('Nothing of the file was built. Give your own config file with --config FILE '
           '(config=…), or a file from another source.')
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8,
          torch.int16, torch.int32, torch.int64, torch.bool)
NAMES = items(text(), 1, 1_000_000)
PAIRS = items(items(integer(0, 1_000_000), 2, 2), 0, 10_000_000)
MOST_WORDS = 200_000
SHA256 = re.compile('[0-9a-f]{64}')
MOST_PAIRS = 100_000_000  # attributes x objects, what the open world asks memory for


class CheckpointFile(NamedTuple):
    """A checkpoint whose parts have the right types.

    Attributes:
        name (str): The file.
        state (dict[str, Tensor]): Weights, all finite.
        meta (dict): Plain data.
    """
    name: str
    state: dict[str, Tensor]
    meta: dict[str, Any]

    def field(self, key: str) -> Any:
        """A field of ``meta`` that prediction needs."""
        value, reason = self.meta.get(key), self.meta.get(f'no_{key}')
        if value is None and isinstance(reason, str):
            raise FileError(self.name, f'it does not describe its model, because {reason}',
                            'Give your config file with --config FILE (config=…).', 'meta')
        if not isinstance(value, (dict, str)) or not value:
            raise FileError(self.name, f'there is no meta field {key!r}, so it cannot predict '
                            'on its own', 'Files that tools/train.py wrote have it; for others, '
                            'give the config and train again.', 'meta')
        return value

    def spec(self, imports: tuple[str, ...] = ()) -> dict[str, Any]:
        """The description of the model, checked."""
        try:
            return checked(self.field('description'), imports)
        except Refusal as refusal:
            raise FileError(self.name, f'the description was refused: {refusal}', REFUSED,
                            'meta') from None

    def towers(self) -> dict[str, str]:
        """SHA-256 of the files that frozen towers came from, by the part of the model."""
        found = self.meta.get('towers', {})
        if not isinstance(found, dict) or not all(
                part in PLACES and isinstance(digest, str) and SHA256.fullmatch(digest)
                for part, digest in found.items()):
            raise FileError(self.name, 'the digests of the towers are damaged', TRAIN_AGAIN,
                            'meta.towers')
        return found

    def words(self) -> dict[str, np.ndarray]:
        """Words that the file keeps with their vectors, float32; none in most files."""
        saved = self.meta.get('word_vectors')
        if saved is None:
            return {}
        text, vectors = (saved.get(name) if isinstance(saved, dict) else None
                         for name in ('words', 'vectors'))
        words = text.split('\n', MOST_WORDS) if isinstance(text, str) else []
        if not isinstance(vectors, Tensor) or vectors.ndim != 2 or len(vectors) != len(words) or (
                len(words) > MOST_WORDS or vectors.dtype != torch.float16):
            raise FileError(self.name, 'the word vectors are damaged', TRAIN_AGAIN,
                            'meta.word_vectors')
        check_state(dict(vectors=vectors), self.name)
        return dict(zip(words, vectors.float().numpy()))

    def familiar(self) -> Familiar | None:
        """How training pictures look; None in a file that does not say it."""
        try:
            return Familiar.read(self.meta.get('familiar'))
        except ValueError as error:
            raise FileError(self.name, str(error), TRAIN_AGAIN, 'meta.familiar') from None

    def space(self) -> CompositionSpace:
        """The pairs of all phases, and which of them are seen."""
        try:
            space = _space(self.field('dataset_meta'))
            if not space.seen.any():
                raise ValueError('none of its pairs was seen in training')
            return space
        except FileError:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(self.name, f'the label space cannot be read: {error}', TRAIN_AGAIN,
                            'meta.dataset_meta') from None


def read_checkpoint(checkpoint: str | Path) -> CheckpointFile:
    """Reads a checkpoint and checks its parts.

    Args:
        checkpoint (str | Path): What the user gave: a file or http(s) address, or one of the
            other names of :func:`~.hub.model_file`.
    """
    name = str(checkpoint)
    if torch.__version__ < '2.10':
        warnings.warn(
            f'torch {torch.__version__} has a fault by which a crafted checkpoint corrupts memory '
            '(CVE-2026-24747): read only files of your own, or install torch 2.10 or newer.',
            stacklevel=2)
    content = load_checkpoint(model_file(name))
    meta = content.get('meta') if isinstance(content, dict) else None
    state = content.get('state_dict') if isinstance(content, dict) else None
    if not isinstance(meta, dict) or not isinstance(state, dict):
        raise FileError(name, 'it has no state_dict and meta: it is not an mmcluspro checkpoint',
                        TRAIN_AGAIN)
    check_state(state, name)
    try:
        read_chosen(meta)
    except ValueError as error:
        raise FileError(name, str(error), TRAIN_AGAIN, 'meta') from None
    return CheckpointFile(name, state, meta)


def check_state(state: dict[Any, Any], name: str, part: str = 'state_dict') -> None:
    """Refuses tensors of other types, and values that are not finite.

    Args:
        state (dict): Tensors by key.
        name (str): Of the file, for messages.
        part (str): Of the file. Defaults to 'state_dict'.
    """
    for key, value in state.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            what = f'a {type(value).__name__} was found where a tensor is expected'
        elif value.dtype not in DTYPES or value.layout != torch.strided or value.is_nested or (
                value.is_meta):
            what = (f'a tensor of {value.dtype}, {value.layout} was found where plain numbers are '
                    'expected')
        elif value.numel() * value.element_size() > value.untyped_storage().nbytes():
            what = 'a tensor claims more numbers than the file holds'
        else:
            continue
        raise FileError(name, what, TRAIN_AGAIN, f'{part}, key {shown(key)}')
    wrong = [key.removeprefix('state_dict.')
             for key in non_finite_tensors(dict(state_dict=state))]
    if wrong:
        raise FileError(
            name, f'the weights of {len(wrong)} of {len(state)} tensors are not finite (NaN or '
            'infinite): the training diverged, or the file is damaged',
            'Take an earlier checkpoint of the run, or copy the file again.',
            f'{part}, key {shown(wrong[0])}')


def _space(dataset: Any) -> CompositionSpace:
    if not isinstance(dataset, dict) or not isinstance(dataset.get('space'), dict):
        raise ValueError('space is missing')
    space = {key: check(dataset['space'].get(key), f'space.{key}') for key, check in (
        ('attributes', NAMES), ('objects', NAMES), ('pairs', PAIRS),
        ('seen', items(flag, 0, 10_000_000)))}
    if len(space['attributes']) * len(space['objects']) > MOST_PAIRS:
        raise ValueError(f'{len(space["attributes"])} attributes x {len(space["objects"])} '
                         f'objects are more than {MOST_PAIRS:,} pairs')
    train = CompositionSpace.from_dict(space)
    # Names are sorted by the space; indices of the file mean the names as it lists them.
    known = CompositionSpace(space['attributes'], space['objects'],
                             (rows := _unique(PAIRS(list(dataset.get('known_pairs', ())),
                                                    'known_pairs'))),
                             [False] * len(rows))
    seen = {tuple(pair) for pair in train.train_pairs.tolist()}
    pairs = sorted({tuple(pair) for pair in known.pairs.tolist()}
                   | {tuple(pair) for pair in train.pairs.tolist()})
    return CompositionSpace(train.attributes, train.objects, pairs,
                            [pair in seen for pair in pairs])


def _unique(pairs: list[list[int]]) -> list[tuple[int, ...]]:
    return list(dict.fromkeys(map(tuple, pairs)))
