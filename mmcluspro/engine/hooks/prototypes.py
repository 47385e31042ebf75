"""Initialises the prototypes, updates them after each iteration, and logs their health."""
from typing import Any

import numpy as np
import torch
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import BaseLoop, Runner
from torch import Tensor

from mmcluspro.engine.features import cluster_features
from mmcluspro.engine.ranks import require_same
from mmcluspro.errors import listed
from mmcluspro.models.heads import CompositionHead
from mmcluspro.models.prototypes import PrototypeMixin, balanced_sample
from mmcluspro.models.prototypes.clustered import MOST_CALLS
from mmcluspro.models.state import lacks_training_state
from mmcluspro.registry import HOOKS

from .finite import finite_rows
from .parts import unwrap


@HOOKS.register_module()
class PrototypeHook(Hook):
    """Initialises and updates the banks of a head.

    The head is a :class:`~mmcluspro.models.heads.ClusProHead`, or one of any project with
    :class:`~mmcluspro.models.prototypes.PrototypeMixin`. Others are not affected.

    Args:
        init_samples (int, optional): Most training images from which the prototypes are
            initialised. Of more images so many are chosen that every primitive has as many as
            possible, or all of its own (:func:`~mmcluspro.models.prototypes.balanced_sample`):
            every rank holds their features. None takes all. Defaults to 100000.
        interval (int): Iterations between two log entries about the clusters (``used``, ``balance``
            and ``drift`` of each branch). Defaults to 50.
        check_interval (int): Iterations between two comparisons of the prototypes of all ranks,
            which use a checksum. Defaults to 500.
    """

    priority = 'ABOVE_NORMAL'

    def __init__(self, init_samples: int | None = 100_000, interval: int = 50,
                 check_interval: int = 500) -> None:
        if init_samples is not None and init_samples < 1:
            raise ValueError(f'PrototypeHook.init_samples must be positive, got {init_samples}.')
        if interval < 1:
            raise ValueError(f'PrototypeHook.interval must be positive, got {interval}.')
        self.init_samples = init_samples
        if check_interval < 1:
            raise ValueError(
                f'PrototypeHook.check_interval must be positive, got {check_interval}.')
        self.interval = interval
        self.check_interval = check_interval

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Logs that a training from a published file starts with new prototypes."""
        if isinstance(runner._train_loop, BaseLoop) and lacks_training_state(
                unwrap(runner.model), checkpoint.get('state_dict', {})):
            runner.logger.warning(
                'The checkpoint holds no prototypes, for example a published file: training '
                'starts from new ones, found in the training images with the weights of the '
                'checkpoint.')

    def before_train(self, runner: Runner) -> None:
        """Initialises the banks, unless a checkpoint did."""
        model = unwrap(runner.model)
        head = model.head
        if not isinstance(head, PrototypeMixin):
            return
        banks = head.clustered
        head.expect_batches(runner.train_dataloader.batch_size or 0)
        added = getattr(runner.optim_wrapper, '_accumulative_counts', 1)
        if banks and added > MOST_CALLS:
            raise ValueError(f'optim_wrapper.accumulative_counts={added}: prototypes remember the '
                             f'features of {MOST_CALLS} batches at most. Use larger batches, or '
                             'model.micro_batch.')
        if all(bool(bank.initialised) for bank in banks.values()):
            return
        dataset = runner.train_dataloader.dataset
        total = len(dataset)
        count = min(self.init_samples or total, total)
        runner.logger.info(f'Initialising the prototypes from {count} training images')
        own = None if count == total else _labels(dataset, list(banks))
        indices = np.linspace(0, total - 1, count).round().astype(int)
        if own is not None:
            indices = balanced_sample(list(own.values()), count).numpy()
        features, labels = cluster_features(model, runner.train_dataloader, indices)
        _require_finite(features, dataset, indices)
        for branch, bank in banks.items():
            counts = torch.bincount((own or labels)[branch], minlength=bank.num_classes)
            bank.initialise(features[branch], labels[branch], counts)

    def before_train_epoch(self, runner: Runner) -> None:
        """Tells our heads, with or without banks, which epoch begins."""
        head = unwrap(runner.model).head
        if isinstance(head, CompositionHead):
            head.begin_epoch(runner.epoch)

    def after_train_epoch(self, runner: Runner) -> None:
        """Tells our heads, with or without banks, which epoch ended."""
        head = unwrap(runner.model).head
        if isinstance(head, CompositionHead):
            head.end_epoch(runner.epoch)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict | None = None) -> None:
        """Eq. 9, with the features and assignments since the last step of the optimizer."""
        head = unwrap(runner.model).head
        if not isinstance(head, PrototypeMixin):
            return
        if self._optimizer_moved(runner):
            head.update_prototypes()
        if self.every_n_train_iters(runner, self.check_interval):
            require_same({f'The {name}': state for name, state in head.replicated.items()})
        if self.every_n_train_iters(runner, self.interval):
            for name, value in head.health().items():
                runner.message_hub.update_scalar(f'train/{name}', value)

    @staticmethod
    def _optimizer_moved(runner: Runner) -> bool:
        """Whether this iteration ended with a step, or only added to the gradients."""
        wrapper = runner.optim_wrapper
        return not isinstance(wrapper, OptimWrapper) or wrapper.should_update()


def _labels(dataset: Any, banks: list[str]) -> dict[str, Tensor] | None:
    """Labels of all images for banks of attributes and objects; None for others."""
    if not set(banks) <= {'attr', 'obj'}:
        return None
    infos = (dataset.get_data_info(index) for index in range(len(dataset)))
    table = np.fromiter(((info['attr_label'], info['obj_label']) for info in infos),
                        dtype=np.dtype((np.int64, 2)), count=len(dataset))
    return dict(zip(('attr', 'obj'), torch.from_numpy(table).unbind(1)))


def _require_finite(features: dict[str, Tensor], dataset: Any, indices: np.ndarray) -> None:
    """Names the training images whose features (N, D) hold NaN or infinity."""
    finite = torch.stack([finite_rows(part) for part in features.values()]).all(dim=0)
    bad = (~finite).nonzero()[:, 0].tolist()
    if bad:
        names = [dataset.get_data_info(int(indices[i])).get('img_path', f'sample {indices[i]}')
                 for i in bad]
        raise ValueError(
            f'{len(bad)} of {len(indices)} training images have features with NaN or infinity '
            f'before training: {listed(names)}. Repair or remove them, or check the weights of '
            'the backbone.')
