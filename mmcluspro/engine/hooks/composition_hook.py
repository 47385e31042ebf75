"""Keeps model, datasets, metrics and checkpoints on one label space."""
import json
from pathlib import Path
from typing import Any

import torch
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import BaseLoop, Runner
from torch import Tensor, nn

from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation import Calibration, CZSLMetric, feasibility_scores
from mmcluspro.registry import HOOKS


def unwrap(model: nn.Module) -> Any:
    """Returns the model inside DDP and its like."""
    return model.module if is_model_wrapper(model) else model


def czsl_metrics(evaluator: Evaluator) -> list[CZSLMetric]:
    """Returns those metrics of an evaluator that are ours."""
    return [metric for metric in evaluator.metrics if isinstance(metric, CZSLMetric)]


def needs_calibration(runner: Runner) -> bool:
    """Whether a test waits for a threshold that validation has to choose."""
    waiting = any(metric.threshold == 'stored' for metric in czsl_metrics(runner.test_evaluator))
    hook = next(hook for hook in runner.hooks if isinstance(hook, CompositionHook))
    return waiting and hook.threshold is None and runner.val_evaluator is not None


def score_link(head: nn.Module) -> str:
    """What makes logits of the scores of a head: the logarithm, or nothing."""
    return 'identity' if getattr(head, 'fusion', None) == 'logits' else 'log'


def stored_calibration(calibration: dict[str, Any], world: str) -> Calibration | None:
    """Temperature and seen bias of a world from ``meta.calibration``, None where there is none."""
    values = calibration.get(world, {})
    if any(values.get(name) is None for name in Calibration._fields):
        return None
    return Calibration(*(float(values[name]) for name in Calibration._fields))


@torch.no_grad()
def text_feasibility(text: Any, space: CompositionSpace) -> Tensor:
    """Feasibility of all pairs from the text features of the primitives, (A, O)."""
    training = text.training
    text.eval()  # no dropout, and the features stay cached for the evaluation
    rho = feasibility_scores(
        text.encode_attributes().cpu(), text.encode_objects().cpu(), space.train_pairs)
    text.train(training)
    return rho


@HOOKS.register_module()
class CompositionHook(Hook):
    """Hands the label space around, and what validation chose to the test.

    - Before training: the dataset and the model must have the same labels.
    - Before validation and test: the model scores the pairs of that phase, for
      every world that a metric asks for; open-world metrics get the
      feasibility of all pairs from the text features.
    - After validation: bias, threshold, temperature and seen bias are kept,
      saved in the checkpoint's ``meta.calibration``, and used by the test.
    - After each evaluation: the seen-unseen curve goes to the work folder.
    - On loading: other labels are an error.
    """

    priority = 'ABOVE_NORMAL'

    def __init__(self) -> None:
        self.calibration: dict[str, dict[str, float | None]] = {}
        self._calibrated_at: int | None = None

    def before_train(self, runner: Runner) -> None:
        """Compares the labels of the training set with those of the model."""
        dataset, model = runner.train_dataloader.dataset, unwrap(runner.model).space
        same = (dataset.space.attributes == model.attributes
                and dataset.space.objects == model.objects
                and dataset.space.train_pairs.equal(model.train_pairs))
        if not same:
            raise ValueError(
                f'The training set has {dataset.space}, the model {model}: model.space and '
                'train_dataloader.dataset in the config must name the same data.')

    def before_val(self, runner: Runner) -> None:
        """Prepares the pairs of validation."""
        self._prepare(runner, runner.val_loop.dataloader.dataset.space, runner.val_evaluator)
        for metric in czsl_metrics(runner.val_evaluator):
            metric.set_calibration(score_link(unwrap(runner.model).head))

    def before_test(self, runner: Runner) -> None:
        """Prepares the pairs of the test, with what validation chose."""
        self._prepare(runner, runner.test_loop.dataloader.dataset.space, runner.test_evaluator)
        for metric in czsl_metrics(runner.test_evaluator):
            if metric.threshold == 'stored' and self.threshold is not None:
                metric.threshold = self.threshold
            chosen = stored_calibration(self.calibration, metric.world)
            if chosen is not None:
                metric.set_calibration(score_link(unwrap(runner.model).head), chosen)

    @property
    def threshold(self) -> float | None:
        """The open-world threshold that validation chose."""
        return self.calibration.get('open', {}).get('threshold')

    def _prepare(self, runner: Runner, space: CompositionSpace, evaluator: Evaluator) -> None:
        head = unwrap(runner.model).head
        metrics = czsl_metrics(evaluator)
        worlds = {'closed': space}
        if any(metric.world == 'open' for metric in metrics):
            worlds['open'] = space.open_world()
        head.set_worlds(worlds)
        if any(metric.wants_feasibility for metric in metrics):
            rho = text_feasibility(head.text, space)
            for metric in metrics:
                metric.set_feasibility(rho)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Keeps bias and threshold."""
        for metric in czsl_metrics(runner.val_evaluator):
            self.calibration[metric.world] = dict(metric.chosen)
        self._calibrated_at = runner.iter
        self._plot(runner, runner.val_evaluator, 'val', metrics)

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Draws the curve, and writes the numbers beside it."""
        self._plot(runner, runner.test_evaluator, 'test', metrics)
        if runner.rank == 0:
            path = Path(runner.work_dir) / 'test_metrics.json'
            path.write_text(json.dumps(metrics, indent=2) + '\n')
            runner.logger.info(f'Test metrics: {path}')

    def _plot(self, runner: Runner, evaluator: Evaluator, phase: str,
              metrics: dict[str, float] | None) -> None:
        """Leaves the curves in the work folder, and shows them in the visualizer."""
        if runner.rank != 0:
            return
        from mmcluspro.visualization import leave_curves, show_picture
        ours = [metric for metric in czsl_metrics(evaluator) if metric.curve is not None]
        if ours:
            numbers = {metric.world: {
                name: value for name in ('auc', 'hm')
                if (value := (metrics or {}).get(f'{metric.prefix}/{name}')) is not None
            } for metric in ours}
            curves = {metric.world: metric.curve for metric in ours if metric.curve is not None}
            path = leave_curves(curves, runner.work_dir, phase, numbers)
            show_picture(runner.visualizer, path.stem, path, runner.iter)
            runner.logger.info(f'Seen-unseen curve: {path}')

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Saves bias and threshold beside the weights that they were chosen for."""
        if self._calibrated_at == runner.iter:
            checkpoint['meta']['calibration'] = {
                world: dict(values) for world, values in self.calibration.items()}

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Checks the labels, and takes over bias and threshold."""
        model = unwrap(runner.model)
        meta = checkpoint.get('meta', {})
        _check_weights_only(runner, checkpoint)
        saved = meta.get('dataset_meta', {}).get('space')
        if saved is not None:
            names = (tuple(saved['attributes']), tuple(saved['objects']))
            if names != (model.space.attributes, model.space.objects):
                raise ValueError(
                    f'The checkpoint was trained on {len(names[0])} attributes and '
                    f'{len(names[1])} objects that differ from those of model.space '
                    f'({len(model.space.attributes)} and {len(model.space.objects)}). Use the '
                    'config that it was trained with.')
        self.calibration = meta.get('calibration', {})
        self._calibrated_at = runner.iter if self.calibration else None


def _check_weights_only(runner: Runner, checkpoint: dict[str, Any]) -> None:
    """A published file holds neither the state of a run nor prototypes."""
    if runner._resume and 'message_hub' not in checkpoint:
        raise ValueError(
            'The checkpoint holds weights only, for example a published file: there is no run to '
            'go on with. Leave --resume out and start from the weights with --cfg-options '
            'load_from=FILE, or resume from an epoch_*.pth of the run.')
    keys = checkpoint.get('state_dict', {})
    banks = getattr(unwrap(runner.model).head, 'banks', None)
    if isinstance(runner._train_loop, BaseLoop) and banks and not any(
            'head.banks.' in key for key in keys):
        runner.logger.warning(
            'The checkpoint holds no prototypes, for example a published file: training starts '
            'from new ones, found in the training images with the weights of the checkpoint.')
