"""Initialises the prototypes, moves them after each iteration, logs their health."""
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mmengine.dist import all_gather, get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from mmcluspro.models.heads import ClusProHead
from mmcluspro.registry import HOOKS

from .composition_hook import unwrap


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
        # torch.manual_seed would walk over all devices, a millisecond a sample.
        torch.default_generator.manual_seed(index)
        return self.dataset[index]


@HOOKS.register_module()
class PrototypeHook(Hook):
    """Runs the banks of a :class:`~mmcluspro.models.heads.ClusProHead`.

    Args:
        init_samples (int, optional): How many training images the prototypes
            are initialised from, evenly spread. Defaults to None, all: one
            pass over the training set.
        interval (int): Iterations between two entries of the clusters' health
            in the log (``used``, ``balance`` and ``drift`` of each branch).
            Defaults to 50.
    """

    priority = 'ABOVE_NORMAL'

    def __init__(self, init_samples: int | None = None, interval: int = 50) -> None:
        if init_samples is not None and init_samples < 1:
            raise ValueError(f'PrototypeHook.init_samples must be positive, got {init_samples}.')
        if interval < 1:
            raise ValueError(f'PrototypeHook.interval must be positive, got {interval}.')
        self.init_samples = init_samples
        self.interval = interval

    def before_train(self, runner: Runner) -> None:
        """Fills the banks, unless a checkpoint did."""
        model = unwrap(runner.model)
        if not isinstance(model.head, ClusProHead):
            raise ValueError(
                f'PrototypeHook needs a ClusProHead, got {type(model.head).__name__}: take the '
                'hook out of custom_hooks, or change model.head.')
        banks = {branch: model.head.bank(branch) for branch in model.head.banks}
        if all(bool(bank.initialised) for bank in banks.values()):
            return
        total = len(runner.train_dataloader.dataset)
        count = min(self.init_samples or total, total)
        runner.logger.info(f'Initialising the prototypes from {count} training images')
        indices = np.linspace(0, total - 1, count).round().astype(int)
        features, labels = extract(model, runner.train_dataloader, indices)
        for branch, bank in banks.items():
            counts = torch.bincount(labels[branch], minlength=bank.num_classes)
            bank.initialise(features[branch], labels[branch], counts)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict | None = None) -> None:
        """Eq. 9, with the features and assignments of this iteration."""
        head = unwrap(runner.model).head
        head.update_prototypes()
        if self.every_n_train_iters(runner, self.interval):
            for name, value in head.health().items():
                runner.message_hub.update_scalar(f'train/{name}', value)


@torch.no_grad()
def extract(model: Any, loader: DataLoader,
            indices: np.ndarray) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Features and labels of training images, the same on any number of ranks.

    Args:
        model (nn.Module): Classifier; runs in eval mode.
        loader (DataLoader): Whose dataset, batch size, workers and collate
            function are used.
        indices (np.ndarray): Images to take, shape (N,).

    Returns:
        tuple: Features (N, D) and labels (N,) by branch, in the order given.
    """
    world, rank = get_world_size(), get_rank()
    # Every rank takes each world-th image; the last ones repeat to make the shares equal.
    padded = np.concatenate([indices, indices[:1].repeat(-len(indices) % world)])
    mine = DataLoader(
        SeededView(loader.dataset, padded[rank::world].tolist()),
        batch_size=loader.batch_size, num_workers=loader.num_workers,
        collate_fn=loader.collate_fn)
    state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    training = model.training
    model.eval()
    parts: list[list[Tensor]] = [[], [], [], []]
    for batch in mine:
        data = model.data_preprocessor(batch, False)
        feats = model.extract_feat(data['inputs'])
        labels = model.head.labels(data['data_samples'])
        for part, tensor in zip(parts, (feats[-3], feats[-2], labels['attr'], labels['obj'])):
            part.append(tensor)
    model.train(training)
    random.setstate(state[0])
    np.random.set_state(state[1])
    torch.set_rng_state(state[2])
    f_a, f_o, attr, obj = (
        torch.stack(all_gather(torch.cat(part).contiguous()), dim=1).flatten(0, 1)[:len(indices)]
        for part in parts)
    return dict(attr=f_a, obj=f_o), dict(attr=attr, obj=obj)
