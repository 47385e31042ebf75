"""Features of training images for prototypes and fits, the same on any number of ranks."""
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from mmengine.dist import all_gather, get_rank, get_world_size
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from mmcluspro.models.classifier import ImageBatch, run_images

from .resuming import generator_state, restore_generators


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


def primitive_features(
        model: Any, loader: DataLoader,
        indices: np.ndarray) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Runs the model in eval mode over some images; every rank takes a share and gets all.

    Random transforms depend on the index of an image only, and the generators are left as they
    were.

    Args:
        model (nn.Module): Classifier with attribute and object paths.
        loader (DataLoader): Whose dataset, batch size, workers and collate
            function are used.
        indices (np.ndarray): Images to take, shape (N,).

    Returns:
        tuple: Features (N, D) and labels (N,) by branch 'attr' and 'obj', in the order given.
    """
    primitives = run_all(model, loader, indices, lambda batch: [
        *(batch.features.primitives[name] for name in ('attr', 'obj')),
        *(batch.labels[name] for name in ('attr', 'obj'))])
    f_a, f_o, attr, obj = primitives
    return dict(attr=f_a, obj=f_o), dict(attr=attr, obj=obj)


def run_all(model: Any, loader: DataLoader, indices: np.ndarray,
            pick: Callable[[ImageBatch], Sequence[Tensor]]) -> list[Tensor]:
    """Tensors of some images, as :func:`primitive_features` runs them.

    Args:
        model (nn.Module): The classifier.
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
