"""Whether a picture looks like those that a model was trained on."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.datasets import CZSLDataset

from .images import Item

SIDE, BORDER, LEVELS = 48, 4, 4  # pixels, pixels, scales of detail
WIDTH = 29  # numbers of a look
FLAT = 1e-3  # deviation below which a picture counts as flat
SAME = 1e-2  # distance below which it is the same picture
MOST_TRAIN, MOST_HELD_OUT, FEWEST = 1000, 500, 20
QUANTILE = 0.995
Prepare = Callable[[Item], tuple[Any, 'str | None']]


def shrunk(image: Tensor) -> Tensor:
    """The middle square of a picture (3, H, W), uint8, as 48 x 48 pixels in [0, 1]."""
    edge = min(image.shape[1:])
    top, left = ((length - edge) // 2 for length in image.shape[1:])
    square = image[None, :, top:top + edge, left:left + edge].float() / 255
    return F.interpolate(square, (SIDE, SIDE), mode='area')[0]


def looks_of(pixels: Tensor) -> Tensor:
    """Numbers for how pictures look, not for what they show.

    They are brightness and two colour differences (mean and deviation), colour and evenness of the
    border, detail at four scales, and quantiles of the brightness.

    Args:
        pixels (Tensor): Of :func:`shrunk`, shape (B, 3, 48, 48).

    Returns:
        Tensor: Shape (B, 29).
    """
    first, second, third = pixels.unbind(1)
    grey = pixels.mean(1)
    planes = torch.stack([grey, first - second, third - second], dim=1)
    inner = F.pad(torch.ones(SIDE - 2 * BORDER, SIDE - 2 * BORDER, dtype=torch.bool),
                  (BORDER, ) * 4)
    border = pixels[:, :, ~inner]
    middle = border.median(dim=2).values
    away = (border - middle[..., None]).abs().amax(dim=1)
    parts = [planes.mean((2, 3)), planes.flatten(2).std(2), middle,
             away.quantile(torch.tensor([0.5, 0.75, 0.9]), dim=1).T]
    for _ in range(LEVELS):
        coarse = F.avg_pool2d(planes, 2)
        detail = planes - F.interpolate(coarse, planes.shape[2:], mode='nearest')
        parts.append(detail.flatten(2).std(2).clamp_min(FLAT).log())
        planes = coarse
    levels = torch.tensor([0.02, 0.1, 0.5, 0.9, 0.98])
    return torch.cat([*parts, grey.flatten(1).quantile(levels, dim=1).T], dim=1)


class Familiar(NamedTuple):
    """Looks of training pictures, and how far from them a familiar picture may be.

    Args:
        looks (Tensor): Of N training pictures, shape (N, 29), float16.
        threshold (float): The 99.5% quantile of the distance of held-out pictures.
    """
    looks: Tensor
    threshold: float

    @classmethod
    def of(cls, prepare: Prepare, train: CZSLDataset, held_out: CZSLDataset) -> Familiar | None:
        """Measures pictures of two datasets, evenly spread; None where there are too few.

        Args:
            prepare (Callable): Reads a picture, see :attr:`TrainedModel.prepare`.
            train (CZSLDataset): Of training.
            held_out (CZSLDataset): Of validation. The same pictures do not count for themselves.
        """
        looks = _looks(prepare, train, MOST_TRAIN).half()
        others = _looks(prepare, held_out, MOST_HELD_OUT)
        if min(len(looks), len(others)) < FEWEST:
            return None
        found = cls(looks, 0.0)
        distances = found.distances(others, least=SAME).numpy()
        return cls(looks, float(np.quantile(distances, QUANTILE, method='higher')))

    @classmethod
    def read(cls, saved: Any) -> Familiar | None:
        """What :meth:`to_meta` gave; None for a checkpoint without it.

        Raises:
            ValueError: It is something else.
        """
        if saved is None:
            return None
        looks, threshold = (saved.get(name) if isinstance(saved, Mapping) else None
                            for name in cls._fields)
        if not isinstance(looks, Tensor) or looks.dtype != torch.float16 or (
                looks.layout != torch.strided or looks.is_meta or looks.ndim != 2
                or looks.shape[1] != WIDTH or not 1 < len(looks) <= MOST_TRAIN
                or not bool(looks.isfinite().all())):
            raise ValueError('the looks of training pictures are damaged')
        if isinstance(threshold, bool) or not isinstance(threshold, float) or not (
                0 < threshold < 1e6):
            raise ValueError('the threshold of the looks is damaged')
        return cls(looks, threshold)

    def to_meta(self) -> dict[str, Any]:
        """Plain data for ``meta.familiar`` of a checkpoint."""
        return self._asdict()

    def distances(self, looks: Tensor, least: float = 0.0) -> Tensor:
        """Distances to the nearest training picture, in deviations of each number.

        Args:
            looks (Tensor): Of :func:`looks_of`, shape (B, 29).
            least (float): Nearer training pictures do not count. Defaults to 0.

        Returns:
            Tensor: Shape (B,).
        """
        own = self.looks.float()
        scale = own.std(dim=0).clamp_min(FLAT)
        away = torch.cdist(looks / scale, own / scale, compute_mode='donot_use_mm_for_euclid_dist')
        return away.masked_fill(away < least, torch.inf).amin(dim=1)

    def is_strange(self, image: Tensor) -> bool:
        """Whether a picture looks unlike the training pictures.

        Args:
            image (Tensor): As the model gets it, shape (3, H, W), uint8.
        """
        return bool(self.distances(looks_of(shrunk(image)[None])) > self.threshold)


def _looks(prepare: Prepare, dataset: CZSLDataset, most: int) -> Tensor:
    """Looks of evenly spread pictures, (N, 29); those that cannot be read are left out."""
    total, small = len(dataset), [torch.empty(0, 3, SIDE, SIDE)]
    for index in np.unique(np.linspace(0, total - 1, min(most, total)).round().astype(int)):
        info = dataset.get_data_info(int(index))
        image, _ = prepare(Item(str(index), info['img'] if 'img' in info else info['img_path']))
        if image is not None:
            small.append(shrunk(image)[None])
    return looks_of(torch.cat(small))
