"""How steady an online assignment is, and how near to the offline one, on features that stay."""
import statistics
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mmcluspro.models.prototypes import (
    PrototypeBank,
    assign_together,
    local_aware_assign,
)

# What a bank is told, by the name in the records.
STRATEGIES: dict[str, dict[str, Any]] = {
    'nearest': dict(assigner=dict(type='mmcluspro.CosineAssigner')),
    'batch': dict(assigner=dict(type='mmcluspro.LocalAwareOT', scope='batch')),
    **{f'queue {size}': dict(queue_size=size) for size in (0, 16, 64, 128)},
}


@dataclass(frozen=True)
class Branch:
    """Features of all training images for one branch, and its prototypes.

    Args:
        features (Tensor): Shape (N, D).
        labels (Tensor): Primitive of each, shape (N,).
        bank (PrototypeBank): Initialised; its prototypes are used and not moved.
    """
    features: Tensor
    labels: Tensor
    bank: PrototypeBank

    def with_strategy(self, options: Mapping[str, Any]) -> PrototypeBank:
        """A bank with the same prototypes that assigns in another way."""
        other = PrototypeBank(self.bank.num_classes, self.bank.dim,
                              self.bank.num_prototypes, **options)
        other.load_state_dict({name: value for name, value in self.bank.state_dict().items()
                               if not name.startswith('queue.')}, strict=False)
        other.require_initialised()
        return other.train()

    def offline(self, chosen: Tensor) -> Tensor:
        """Rows (T,) of the chosen images by Eq. 7-8 over all training images of a primitive."""
        rows = torch.empty_like(self.labels)
        for c in self.labels[chosen].unique().tolist():
            own, first = (self.labels == c).nonzero()[:, 0], int(self.bank.offsets[c])
            table = self.bank.prototypes[first:int(self.bank.offsets[c + 1])]
            rows[own] = first + local_aware_assign(
                self.features[own], torch.zeros_like(own), table, len(table),
                solver='exact').rows
        return rows[chosen]


class PeakBytes(TorchDispatchMode):
    """The most bytes that tensors made inside hold at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if all(each.alias_info is None for each in func._schema.returns):
            for tensor in tree_leaves(result):
                if isinstance(tensor, Tensor):
                    size = tensor.untyped_storage().nbytes()
                    self.live += size
                    weakref.finalize(tensor, self._freed, size)
        self.peak = max(self.peak, self.live)
        return result

    def _freed(self, size: int) -> None:
        self.live -= size


def one_pass(branches: Sequence[Branch], banks: Sequence[PrototypeBank], chosen: Tensor,
             batch: int, seed: int) -> tuple[list[Tensor], list[float]]:
    """Assigns the chosen images batch by batch, as training would with weights that stay.

    The queues first see all training images, and the batches are drawn, in the order of the seed.

    Args:
        branches (Sequence[Branch]): Attributes and objects.
        banks (Sequence[PrototypeBank]): Their banks.
        chosen (Tensor): Images, shape (T,).
        batch (int): Images per batch.
        seed (int): Of the order.

    Returns:
        tuple: Rows of each branch, shapes (T,), and the CPU seconds of each batch.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(branches[0].labels), generator=generator)
    for branch, bank in zip(branches, banks):
        bank.fill_queue(branch.features[order], branch.labels[order])
    rows, seconds = [torch.empty_like(chosen) for _ in branches], []
    for part in torch.randperm(len(chosen), generator=generator).split(batch):
        images = chosen[part]
        start = time.process_time()
        found = assign_together(banks, [branch.features[images] for branch in branches],
                                [branch.labels[images] for branch in branches])
        seconds.append(time.process_time() - start)
        for row, new in zip(rows, found):
            row[part] = new
    return rows, seconds


def compare(branches: Mapping[str, Branch], batch: int, chosen: Tensor) -> list[dict[str, Any]]:
    """Measures all strategies.

    Args:
        branches (Mapping[str, Branch]): By name, 'attr' and 'obj'.
        batch (int): Images per batch.
        chosen (Tensor): Images that are assigned, shape (T,).

    Returns:
        list[dict]: By strategy and branch: ``stable``, the share of images that keep their
        prototype in other batches; ``agrees``, the share with the prototype of the offline
        solution; ``transport``, the share that transport decided. The time of a batch
        (``ms``), the memory that stays (``queue_mb``) and that of a step (``step_mb``) are
        those of both branches together.
    """
    parts, records = list(branches.values()), []
    offline = [branch.offline(chosen) for branch in parts]
    for name, options in STRATEGIES.items():
        banks = [branch.with_strategy(options) for branch in parts]
        first, seconds = one_pass(parts, banks, chosen, batch, seed=1)
        second, more = one_pass(parts, banks, chosen, batch, seed=2)
        with PeakBytes() as memory:
            assign_together(banks, [branch.features[chosen[:batch]] for branch in parts],
                            [branch.labels[chosen[:batch]] for branch in parts])
        held = sum(bank.queue.features.nbytes for bank in banks if bank.queue is not None)
        for i, branch in enumerate(branches):
            bank = banks[i]
            records.append(dict(
                strategy=name, branch=branch,
                stable=_share(first[i] == second[i]), agrees=_share(second[i] == offline[i]),
                transport=round(int(bank.transported) / max(int(bank.assigned), 1), 4),
                ms=round(1e3 * statistics.median(seconds + more), 2),
                queue_mb=round(held / 2**20, 2), step_mb=round(memory.peak / 2**20, 2)))
    return records


def _share(equal: Tensor) -> float:
    return round(float(equal.float().mean()), 4)


def mixture(labels: Tensor, partners: Tensor, dim: int, seed: int = 0, modes: int = 5) -> Tensor:
    """Synthetic features: a centre per primitive, a mode of it that the partner decides, noise.

    Args:
        labels (Tensor): Primitive of each image, shape (N,).
        partners (Tensor): The other primitive of its pair, shape (N,).
        dim (int): D.
        seed (int): Of all draws. Defaults to 0.
        modes (int): Looks of a primitive. Defaults to 5.

    Returns:
        Tensor: Unit norm; two images of a primitive have a cosine of about 2/3 in the same mode
        and 1/3 in different ones, shape (N, D).
    """
    generator = torch.Generator().manual_seed(seed)

    def directions(*shape: int) -> Tensor:
        drawn = torch.randn(*shape, dim, generator=generator)
        return torch.nn.functional.normalize(drawn, dim=-1)
    classes, others = int(labels.max()) + 1, int(partners.max()) + 1
    mode = torch.randint(modes, (classes, others), generator=generator)[labels, partners]
    vectors = directions(classes)[labels] + directions(classes, modes)[labels, mode]
    return torch.nn.functional.normalize(vectors + directions(len(labels)), dim=1)
