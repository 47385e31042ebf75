"""Scores as tensors, on any device: their logarithms, and what :mod:`.margins` keeps of a batch."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .margins import LOG_ZERO, PairGroups, Top, check_link, read_block
from .margins import top_of_groups as top_of_arrays


def log_scores(scores: Tensor, link: str = 'log') -> Tensor:
    """z of scores, in at least single precision.

    Args:
        scores (Tensor): Any shape.
        link (str): 'log' for scores of Eq. 13, 'identity' for logits. Defaults to 'log'.
    """
    check_link(link)
    scores = scores if scores.dtype == torch.float64 else scores.float()
    return scores.log().clamp_min(LOG_ZERO) if link == 'log' else scores


def as_matrix(rows: Sequence[Tensor]) -> Tensor:
    """Rows (P,) as a matrix (B, P), without a copy if they are neighbours in one tensor."""
    first = rows[0]
    storage, step = first.untyped_storage().data_ptr(), first.numel() * first.element_size()
    neighbours = all(
        row.untyped_storage().data_ptr() == storage and row.dtype == first.dtype
        and row.is_contiguous() and row.data_ptr() == first.data_ptr() + i * step
        for i, row in enumerate(rows))
    if neighbours:
        return first.as_strided((len(rows), len(first)), (len(first), 1))
    return torch.stack(list(rows))


def order_of(groups: PairGroups, device: torch.device) -> Tensor:
    """``groups.order`` on a device."""
    return torch.from_numpy(groups.order).to(device)


def top_of_groups(scores: Tensor, groups: PairGroups, k: int) -> Top:
    """:func:`.margins.top_of_groups` of a tensor (B, P), on the device where it is."""
    if scores.device.type == 'cpu':
        return top_of_arrays(scores.numpy(), groups, k)
    return top_on_device(scores, groups, k)


def top_on_device(scores: Tensor, groups: PairGroups, k: int) -> Top:
    """The same with torch: nothing of the size of the scores leaves the device."""
    ordered = scores.index_select(1, order_of(groups, scores.device))
    score = scores.new_full((len(scores), groups.num + 1, k), -torch.inf)
    place = torch.full(score.shape, -1, device=scores.device)
    for j, (start, end) in enumerate(zip(groups.bounds, groups.bounds[1:])):
        part = ordered[:, start:end]
        for rank in range(min(k, end - start)):
            best = part.argmax(1, keepdim=True)
            score[:, j, rank] = part.gather(1, best)[:, 0]
            place[:, j, rank] = best[:, 0] + start
            part.scatter_(1, best, -torch.inf)
    pair = np.append(groups.order, scores.shape[1])[place.cpu().numpy()]
    return Top(score.cpu().numpy(), pair)


def read_tensor(scores: Tensor, targets: np.ndarray, groups: PairGroups, k: int,
                names: Sequence[object], bias_on: str) -> tuple[Top, np.ndarray]:
    """:func:`.margins.read_block` of a tensor (B, P), on the device where it is."""
    if scores.dtype not in (torch.float32, torch.float64):
        scores = scores.float() if scores.is_floating_point() else scores.double()
    if scores.device.type == 'cpu':
        return read_block(scores.numpy(), targets, groups, k, names, bias_on)
    return read_on_device(scores, targets, groups, k, names, bias_on)


def read_on_device(scores: Tensor, targets: np.ndarray, groups: PairGroups, k: int,
                   names: Sequence[object], bias_on: str) -> tuple[Top, np.ndarray]:
    """The same with torch; only scores that are refused leave the device."""
    bad = ~scores.isfinite().all(1)
    if bias_on == 'log':
        bad |= (scores < 0).any(1)
    if bool(bad.any()):
        read_block(scores.cpu().numpy(), targets, groups, k, names, bias_on)  # says which
    true = scores.gather(1, torch.from_numpy(targets).to(scores.device)[:, None])[:, 0]
    return top_on_device(scores, groups, k), true.cpu().numpy()
