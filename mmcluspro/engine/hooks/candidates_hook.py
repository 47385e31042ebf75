"""Sets the candidates of each evaluation, and tells its metrics about the head."""
from typing import Any

from mmengine.dist import get_world_size
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.evaluation import head_feasibility, phase_worlds
from mmcluspro.registry import HOOKS

from .parts import czsl_metrics, unwrap


@HOOKS.register_module()
class CandidatesHook(Hook):
    """Sets the pairs of the phase as candidates, for every world that a metric evaluates.

    Metrics get the link of the head. Open-world metrics also get the feasibility of all pairs,
    computed from the weights that are evaluated. With many pairs, the ranks share the encoding.
    """

    # After EMAHook, which puts the averaged weights into the model before an epoch.
    priority = 'BELOW_NORMAL'

    def before_val_epoch(self, runner: Runner) -> None:
        """Prepares a validation."""
        self._prepare(runner, runner.val_loop, runner.val_evaluator)

    def before_test_epoch(self, runner: Runner) -> None:
        """Prepares a test."""
        self._prepare(runner, runner.test_loop, runner.test_evaluator)

    def before_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Encodes the pairs before the first batch."""
        self._share(runner, runner.val_loop, batch_idx)

    def before_test_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Encodes the pairs before the first batch."""
        self._share(runner, runner.test_loop, batch_idx)

    @staticmethod
    def _share(runner: Runner, loop: Any, batch_idx: int) -> None:
        # Not earlier: the text side forgets what it knows when the model changes its mode. And
        # only if every rank has a first batch.
        if batch_idx or len(loop.dataloader.dataset) < get_world_size():
            return
        model = unwrap(runner.model)
        share = getattr(model.head.text, 'share', None)
        if share is None:  # a text side of the user's own
            return
        for candidates in model.worlds.values():
            share(candidates.text_pairs)

    def _prepare(self, runner: Runner, loop: Any, evaluator: Evaluator) -> None:
        model, space = unwrap(runner.model), loop.dataloader.dataset.space
        metrics = czsl_metrics(evaluator)
        model.answer_from(phase_worlds(space, {metric.world for metric in metrics}))
        model.head.forget_adaptation()
        rho = None
        if any(metric.wants_feasibility for metric in metrics):
            rho = head_feasibility(model.head, space)
        for metric in metrics:
            metric.set_link(model.head.link)
            if rho is not None:
                metric.set_feasibility(rho)
