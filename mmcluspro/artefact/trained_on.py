"""What a checkpoint was trained on, so that nobody tests it on what it has learnt."""
from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mmcluspro.datasets.czsl_dataset import CZSLDataset
from mmcluspro.datasets.space import CompositionSpace
from mmcluspro.errors import listed, printable
from mmcluspro.features.store import sample_name
from mmcluspro.utils.digest import sha256

FIELD = 'trained_on'


class TrainedOn(NamedTuple):
    """Seen pairs and images of a training, and of the one whose weights it started from.

    An image is 8 bytes, from its name: 8 MB for a million. A test of 100,000 other images then
    meets one of these numbers by chance with a probability of 5e-9; with 4 bytes, 23 would.

    Attributes:
        pairs (ndarray): int64, attribute · objects + object of each seen pair, sorted.
        images (ndarray): int64, sorted; empty if the checkpoint does not say.
        digest (str): Of the training list alone: seen pairs, and each image with its label. Empty
            if the checkpoint does not say.
    """
    pairs: np.ndarray
    images: np.ndarray
    digest: str

    @classmethod
    def of(cls, dataset: CZSLDataset) -> TrainedOn:
        """What a training set is."""
        pairs, names, labelled = pair_numbers(dataset.space, seen=True), bytearray(), bytearray()
        for i in range(len(dataset)):
            sample = dataset.get_data_info(i)
            name = sample_name(sample)
            names += eight_bytes(name)
            labelled += eight_bytes(f'{name}\0{sample["attr_label"]}\0{sample["obj_label"]}')
        return cls(pairs, np.unique(numbers(names)),
                   sha256(pairs.tobytes(), np.sort(numbers(labelled)).tobytes()))

    @classmethod
    def read(cls, meta: Mapping[str, Any]) -> TrainedOn | None:
        """What a checkpoint says; a published one, and those of before, know the pairs only."""
        saved = meta.get(FIELD)
        if saved is None:
            state = (meta.get('dataset_meta') or {}).get('space')
            return None if state is None else cls(
                pair_numbers(CompositionSpace.from_dict(state), seen=True),
                np.empty(0, np.int64), '')
        found: list[Any] = [saved.get(name) if isinstance(saved, dict) else None
                            for name in cls._fields]
        if not isinstance(found[2], str) or not all(
                isinstance(part, Tensor) and part.dtype == torch.int64 and part.ndim == 1
                for part in found[:2]):
            raise ValueError(f'meta.{FIELD} of the checkpoint must hold two rows of whole numbers '
                             'and a digest: it is damaged, give another one.')
        return cls(found[0].cpu().numpy(), found[1].cpu().numpy(), found[2])

    def write(self, meta: dict[str, Any]) -> None:
        """Puts it into the ``meta`` of a checkpoint, as plain data."""
        meta[FIELD] = dict(pairs=torch.from_numpy(self.pairs),
                           images=torch.from_numpy(self.images), digest=self.digest)

    def after(self, earlier: TrainedOn | None) -> TrainedOn:
        """The same with what the weights had been trained on before."""
        return self if earlier is None else self._replace(
            pairs=np.union1d(self.pairs, earlier.pairs),
            images=np.union1d(self.images, earlier.images))

    def require_same(self, now: TrainedOn) -> None:
        """Refuses to resume with another training list, ``now``."""
        if self.digest == now.digest or not self.digest and np.array_equal(self.pairs, now.pairs):
            return
        new = [f'{len(np.setdiff1d(ours, theirs))} of {len(ours)} {what}'
               for what, ours, theirs in (('seen pairs', now.pairs, self.pairs),
                                          ('images', now.images, self.images)) if len(theirs)]
        raise ValueError(
            f'The training data is not that of the checkpoint: {" and ".join(new)} are new to it '
            '(missing images and other labels count, too). Resume with the data and the split of '
            'the run, or start a new run from its weights, with --cfg-options load_from=FILE '
            'instead of --resume.')

    def overlap(self, dataset: CZSLDataset) -> str:
        """Describes which images and unseen pairs of an evaluation were in the training.

        Returns:
            str: '' if none were.
        """
        space, found = dataset.space, []
        if len(self.images):
            names = [sample_name(dataset.get_data_info(i)) for i in range(len(dataset))]
            known = np.isin(numbers(b''.join(map(eight_bytes, names))), self.images)
            if known.any():
                found.append(f'{known.sum()} of {len(names)} images (by name: '
                             f'{listed([names[i] for i in known.nonzero()[0]])})')
        unseen = pair_numbers(space, seen=False)
        rows = unseen[np.isin(unseen, self.pairs)]
        if len(rows):
            pairs = [f'{space.attributes[row // len(space.objects)]} '
                     f'{space.objects[row % len(space.objects)]}' for row in rows]
            found.append(f'{len(rows)} of {len(unseen)} unseen pairs ({listed(pairs)})')
        return printable(' and '.join(found))


def pair_numbers(space: CompositionSpace, seen: bool) -> np.ndarray:
    """Attribute · objects + object of the seen or the unseen pairs, int64, sorted."""
    pairs = space.pairs[space.seen == seen]
    return (pairs[:, 0] * len(space.objects) + pairs[:, 1]).numpy()


def eight_bytes(text: str) -> bytes:
    """A digest of 8 bytes."""
    return blake2b(text.encode(errors='surrogatepass'), digest_size=8).digest()


def numbers(digests: bytes | bytearray) -> np.ndarray:
    """Digests in sequence as numbers, int64."""
    return np.frombuffer(digests, '<i8').astype(np.int64)
