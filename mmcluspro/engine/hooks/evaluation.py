"""One hook for validation and test: what is scored, how it is read, and what is kept of it."""
import json
import logging
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mmengine.dist import get_world_size
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.runner import Runner
from mmengine.visualization import LocalVisBackend, Visualizer

from mmcluspro.evaluation import Chosen, Evaluation, PredictionMetric, chosen_meta, read_chosen
from mmcluspro.models.heads import CompositionHead
from mmcluspro.registry import HOOKS
from mmcluspro.utils.files import write_text

from .parts import czsl_metrics, find_hook, finished_iterations, unwrap


@HOOKS.register_module()
class EvaluationHook(Hook):
    """Makes the :class:`~mmcluspro.evaluation.Evaluation` of a validation or test.

    It names the pairs that the model scores (those of the phase for each world that a metric asks
    for), the link of the head, the feasibility of all pairs where a metric needs it, from the
    weights that are evaluated, and in a test what validation chose. With many pairs, the ranks
    share the encoding. A model of another project is not asked for worlds: ``CZSLMetric`` reads
    its ``pred_score``.

    What validation chose (bias, threshold, temperature and seen bias of each world) is saved in
    ``meta.calibration`` of the checkpoint together with the weights it was chosen for, and read
    when a checkpoint is loaded. A test writes ``test_metrics.json``.

    Args:
        prediction (bool): Add :class:`~mmcluspro.evaluation.PredictionMetric` to the test: what
            ``mmcluspro predict`` will get right. Defaults to True.

    Attributes:
        chosen (Mapping[str, Chosen]): Values by world for the weights in the model; empty if they
            were not validated.
    """

    # After EMAHook, which puts the averaged weights into the model before an epoch; before
    # CheckpointHook, which saves what validation chose.
    priority = 'BELOW_NORMAL'

    def __init__(self, prediction: bool = True) -> None:
        self.prediction = prediction
        self.chosen: Mapping[str, Chosen] = read_chosen({})
        self._is_current = False  # whether the weights are those that it was chosen for
        self._evaluation = Evaluation()

    def before_test(self, runner: Runner) -> None:
        """Adds ``PredictionMetric``, unless the config has one."""
        metrics = runner.test_evaluator.metrics
        if self.prediction and _composes(runner) and not any(
                isinstance(metric, PredictionMetric) for metric in metrics):
            metrics.append(PredictionMetric())

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """The weights are about to change."""
        self._is_current = False

    def before_val_epoch(self, runner: Runner) -> None:
        """Prepares a validation, which chooses the values."""
        self._prepare(runner, runner.val_loop, runner.val_evaluator, None)

    def before_test_epoch(self, runner: Runner) -> None:
        """Prepares a test with the values that validation chose."""
        self._prepare(runner, runner.test_loop, runner.test_evaluator, self.chosen)

    def _prepare(self, runner: Runner, loop: Any, evaluator: Evaluator,
                 chosen: Mapping[str, Chosen] | None) -> None:
        self._evaluation = Evaluation()
        metrics, dataset = czsl_metrics(evaluator), loop.dataloader.dataset
        if _composes(runner):
            head = unwrap(runner.model).head
            head.forget_adaptation()
            self._evaluation = Evaluation.of(
                head, dataset.space, {metric.world for metric in metrics},
                any(metric.wants_feasibility for metric in metrics),
                any(isinstance(metric, PredictionMetric) for metric in evaluator.metrics))
        else:
            runner.logger.info(f'{type(unwrap(runner.model)).__name__} has no head of mmcluspro: '
                               'CZSLMetric reads its pred_score, over the classes of the dataset.')
        self._evaluation = replace(self._evaluation, chosen=chosen)
        evaluator.dataset_meta = dict(dataset.metainfo, evaluation=self._evaluation)

    def before_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Says which pairs are scored."""
        self._ask(runner, runner.val_loop, batch_idx, data_batch)

    def before_test_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Says which pairs are scored."""
        self._ask(runner, runner.test_loop, batch_idx, data_batch)

    def _ask(self, runner: Runner, loop: Any, batch_idx: int, data_batch: Any) -> None:
        worlds = self._evaluation.worlds
        if not worlds or not isinstance(data_batch, MutableMapping):
            return
        data_batch['worlds'] = worlds
        # Not earlier: the text side forgets what it knows when the model changes its mode. And
        # only if every rank has a first batch.
        if not batch_idx and len(loop.dataloader.dataset) >= get_world_size():
            text = unwrap(runner.model).head.text
            for candidates in worlds.values() if hasattr(text, 'share') else ():
                text.share(candidates.text_pairs)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Keeps what the metrics chose."""
        self.chosen = {metric.world: metric.chosen
                       for metric in czsl_metrics(runner.val_evaluator)}
        self._is_current = True

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Writes ``test_metrics.json``, and shows the numbers in TensorBoard and the like."""
        if runner.rank == 0:
            path = Path(runner.work_dir) / 'test_metrics.json'
            write_text(path, json.dumps(metrics, indent=2) + '\n')
            runner.logger.info(f'Test metrics: {path}')
            show_scalars(runner.visualizer, {f'test/{name}': value
                                             for name, value in (metrics or {}).items()},
                         finished_iterations(runner))

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Saves the values with the weights that they were chosen for, and no others."""
        if self.chosen and self._is_current:
            checkpoint['meta']['calibration'] = chosen_meta(self.chosen)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Reads the values of the loaded weights, or clears them if the file has none."""
        self.chosen = read_chosen(checkpoint.get('meta', {}))
        self._is_current = True


def _composes(runner: Runner) -> bool:
    """Whether the model answers with pairs of candidates; one of another project does not."""
    return isinstance(getattr(unwrap(runner.model), 'head', None), CompositionHead)


def needs_calibration(runner: Runner) -> bool:
    """Whether a test needs a threshold that validation has to choose first."""
    waiting = [metric for metric in czsl_metrics(runner.test_evaluator)
               if metric.threshold == 'stored']
    if not waiting or runner.val_evaluator is None:
        return False
    chosen = find_hook(runner, EvaluationHook).chosen
    return any(chosen.get(metric.world, Chosen()).threshold is None for metric in waiting)


def show_scalars(visualizer: Visualizer, numbers: Mapping[str, float], step: int) -> None:
    """Passes numbers to TensorBoard, Weights & Biases and other backends of the config.

    Args:
        visualizer (Visualizer): Of the runner.
        numbers (Mapping[str, float]): By name.
        step (int): Iteration.
    """
    for backend in getattr(visualizer, '_vis_backends', {}).values():
        # The local backend has the validations; a test among them would be taken for one.
        if not isinstance(backend, LocalVisBackend):
            try:
                backend.add_scalars(dict(numbers), step=step)
            except Exception as error:  # numbers in a browser must never cost a run
                print_log(f'{type(backend).__name__} does not show the numbers of the test '
                          f'({error}); they are in test_metrics.json.', 'current',
                          logging.WARNING)
