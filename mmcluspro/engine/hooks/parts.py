"""Helpers for hooks: the model inside its wrapper, our metrics, other hooks."""
from typing import Any, TypeVar

from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import BaseLoop, Runner
from torch import nn

from mmcluspro.evaluation import CZSLMetric

Kind = TypeVar('Kind', bound=Hook)


def unwrap(model: nn.Module) -> Any:
    """Returns the model inside DDP and similar wrappers."""
    return model.module if is_model_wrapper(model) else model


def is_resuming(runner: Runner) -> bool:
    """Whether the checkpoint that is being loaded is the one to resume, not one to test later."""
    return runner._resume and not runner._has_loaded


def finished_iterations(runner: Runner) -> int:
    """Iterations of the training; 0 in a test, where ``runner.iter`` would build its data."""
    loop = runner._train_loop
    return loop.iter if isinstance(loop, BaseLoop) else 0


def finished_epochs(runner: Runner) -> int:
    """Epochs of the training; 0 in a test, where ``runner.epoch`` would build its data."""
    loop = runner._train_loop
    return loop.epoch if isinstance(loop, BaseLoop) else 0


def czsl_metrics(evaluator: Evaluator) -> list[CZSLMetric]:
    """Returns the metrics of an evaluator that belong to this package."""
    return [metric for metric in evaluator.metrics if isinstance(metric, CZSLMetric)]


def find_hook(runner: Runner, kind: type[Kind]) -> Kind:
    """Returns the hook of a kind.

    Raises:
        ValueError: There is none; says what to write into the config.
    """
    for hook in runner.hooks:
        if isinstance(hook, kind):
            return hook
    raise ValueError(
        f'The runner has no {kind.__name__}: add it to default_hooks of the config, for example '
        f"dict(type='mmcluspro.{kind.__name__}'), or take over default_hooks of "
        'configs/_base_/default_runtime.py.')
