"""Features of training images for prototypes and fits, the same on any number of ranks."""
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from mmengine.dist import all_gather, get_rank, get_world_size
from mmpretrain.models import ImageClassifier
from mmpretrain.structures import DataSample
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from mmcluspro.models.classifier import ImageBatch, run_images

from .resuming import generator_state, restore_generators

Clusters = Callable[[Any, Sequence[DataSample]], Mapping[str, tuple[Tensor, Tensor]]]


class SeededView(Dataset):
    """Some samples of a dataset; the randomness of each depends on its index only."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> Any:
        index = self.indices[position]
        random.seed(index)
        np.random.seed(index % 2**32)
        # torch.manual_seed would visit all devices, which takes a millisecond per sample.
        torch.default_generator.manual_seed(index)
        return self.dataset[index]


def cluster_features(
        model: ImageClassifier, loader: DataLoader, indices: np.ndarray,
        clusters: Clusters | None = None) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Runs the model in eval mode over some images; every rank takes a share and gets all.

    Random transforms depend on the index of an image only, and the generators are left as they
    were.

    Args:
        model (ImageClassifier): The classifier.
        loader (DataLoader): Whose dataset, batch size, workers and collate
            function are used.
        indices (np.ndarray): Images to take, shape (N,).
        clusters (Callable, optional): Features (B, D) and labels (B,) by name, of what
            ``extract_feat`` returned and the samples. Defaults to None: ``clusters`` of the
            head, a :class:`~mmcluspro.models.prototypes.PrototypeMixin`.

    Returns:
        tuple: Features (N, D) and labels (N,) by name, in the order given.
    """
    names: list[str] = []

    def pick(batch: ImageBatch) -> list[Tensor]:
        found = (clusters or model.head.clusters)(batch.outputs, batch.samples)
        names[:] = found
        return [part for pair in found.values() for part in pair]

    parts = run_all(model, loader, indices, pick)
    return dict(zip(names, parts[::2])), dict(zip(names, parts[1::2]))


def run_all(model: ImageClassifier, loader: DataLoader, indices: np.ndarray,
            pick: Callable[[ImageBatch], Sequence[Tensor]]) -> list[Tensor]:
    """Tensors of some images, as :func:`cluster_features` runs them.

    Args:
        model (ImageClassifier): The classifier.
        loader (DataLoader): As there.
        indices (np.ndarray): Images to take, shape (N,).
        pick (Callable): From an :class:`~mmcluspro.models.classifier.ImageBatch` to tensors with
            one row for each image.

    Returns:
        list[Tensor]: N rows each, in the order given.
    """
    world, rank = get_world_size(), get_rank()
    # Every rank takes each world-th image; the last ones repeat to make the shares equal.
    padded = np.concatenate([indices, indices[:1].repeat(-len(indices) % world)])
    mine = DataLoader(
        SeededView(loader.dataset, padded[rank::world].tolist()),
        batch_size=loader.batch_size, num_workers=loader.num_workers,
        collate_fn=loader.collate_fn)
    state = generator_state()
    parts = list(zip(*(pick(batch) for batch in run_images(model, mine))))
    restore_generators(state)
    return [torch.stack(all_gather(torch.cat(part).contiguous()), dim=1).flatten(0, 1)[
        :len(indices)] for part in parts]
