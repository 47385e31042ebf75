"""Near-duplicates: photographs whose features nearly agree."""
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 2048


def near_pairs(features: Tensor, threshold: float) -> list[tuple[int, int]]:
    """Rows i < j whose cosine is at least ``threshold``.

    Args:
        features (Tensor): One row per photograph, shape (N, D).
        threshold (float): Cosine.
    """
    unit = F.normalize(features.float(), dim=1)
    found = []
    for start in range(0, len(unit), BLOCK):
        close = unit[start:start + BLOCK] @ unit.T >= threshold
        rows, columns = close.nonzero(as_tuple=True)
        rows = rows + start
        found += torch.stack([rows, columns], dim=1)[rows < columns].tolist()
    return [(first, second) for first, second in found]


def groups_of(pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Connected groups of rows, each sorted, in the order of their first rows."""
    root: dict[int, int] = {}

    def find(row: int) -> int:
        while root.setdefault(row, row) != row:
            root[row] = row = root[root[row]]
        return row

    for pair in pairs:
        first, second = sorted(map(find, pair))
        root[second] = first
    groups: dict[int, list[int]] = {}
    for row in sorted(root):
        groups.setdefault(find(row), []).append(row)
    return sorted(groups.values())
