"""Validation and test by cross-validation: every answer is of a fit without its photograph.

The model in the runner is fitted to all photographs and has nothing left to be tested on, so these
loops ask the fits of :meth:`FitLoop.folds` instead, each for what it has not seen.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.dist import get_rank, get_world_size
from mmengine.evaluator import Evaluator
from mmengine.runner import Runner, TestLoop, ValLoop
from torch import Tensor

from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation import Chosen, CZSLMetric, Evaluation, PredictionMetric
from mmcluspro.evaluation.intervals import intervals
from mmcluspro.evaluation.margins import reduce_scores
from mmcluspro.models import Candidates
from mmcluspro.models.heads import CompositionHead
from mmcluspro.models.structures import Features
from mmcluspro.registry import LOOPS

BATCH = 512


class Fold(NamedTuple):
    """A fit, and H photographs that it has not seen.

    Attributes:
        head (CompositionHead): Fitted to the others.
        space (CompositionSpace): All pairs; those of the fit are the seen ones.
        images (np.ndarray): Indices of the photographs, shape (H,).
        features (Features): Of them.
        labels (dict[str, Tensor]): 'attr' and 'obj', (H,) each.
    """
    head: CompositionHead
    space: CompositionSpace
    images: np.ndarray
    features: Features
    labels: Mapping[str, Tensor]

    @torch.no_grad()
    def samples(self, worlds: Mapping[str, Candidates]) -> Iterator[list[dict[str, Any]]]:
        """Batches of scored samples, as an evaluator takes them."""
        attr, obj = (self.labels[name].tolist() for name in ('attr', 'obj'))
        for start in range(0, len(self.images), BATCH):
            part: dict[str, Any] = {name: feature[start:start + BATCH]
                                    for name, feature in self.features.paths.items()}
            features = replace(self.features, **part)
            scores = {f'{world}_score': self.head.score(features, pairs).pair
                      for world, pairs in worlds.items()}
            scores['known_score'] = scores['closed_score']
            yield [dict(zip(scores, rows), attr_label=attr[start + i], obj_label=obj[start + i])
                   for i, rows in enumerate(zip(*scores.values()))]


def answer(evaluator: Evaluator, folds: Sequence[Fold],
           chosen: Sequence[Chosen] | None = None,
           base: Evaluation = Evaluation()) -> np.ndarray:  # noqa: B008
    """Passes the answers of all folds to an evaluator.

    Args:
        evaluator (Evaluator): Its metrics count them together.
        folds (Sequence[Fold]): The fits.
        chosen (Sequence[Chosen], optional): What a ``PredictionMetric`` is to answer with, for each
            fold. Defaults to None.
        base (Evaluation): Says whether and what validation chose, if ``EvaluationHook`` does not.

    Returns:
        np.ndarray: The fold of each answer.
    """
    meta = evaluator.dataset_meta or {}
    base = meta.get('evaluation', base)
    metrics = [metric for metric in evaluator.metrics if isinstance(metric, CZSLMetric)]
    own = base
    for place, fold in enumerate(folds):
        own = replace(
            Evaluation.of(fold.head, fold.space, {metric.world for metric in metrics},
                          any(metric.wants_feasibility for metric in metrics)),
            known=fold.space, chosen=base.chosen,
            delivered=None if chosen is None else chosen[place])
        evaluator.dataset_meta = dict(meta, space=fold.space.to_dict(), evaluation=own)
        for samples in fold.samples(own.worlds):
            evaluator.process(samples)
    evaluator.dataset_meta = dict(meta, evaluation=own)
    if get_world_size() > 1:  # every rank has all answers; each keeps a share
        for metric in evaluator.metrics:
            metric.results = metric.results[get_rank()::get_world_size()]
    return np.repeat(np.arange(len(folds)), [len(fold.images) for fold in folds])


def choose_across(folds: Sequence[Fold]) -> list[Chosen]:
    """Bias and temperature for each fold, chosen on the answers of the others."""
    metric = CZSLMetric()
    owner = answer(Evaluator(metric), folds, base=Evaluation(chosen=None))
    rows = metric.results
    return [metric.choose([rows[i] for i in np.flatnonzero(owner != place)])
            for place in range(len(folds))]


def delivered(folds: Sequence[Fold]) -> dict[str, float]:
    """``seen``, ``unseen`` and ``hm`` as predict answers, and ``auc``, in percent."""
    metrics = [CZSLMetric(), PredictionMetric()]
    evaluator = Evaluator(metrics)
    found = evaluator.evaluate(len(answer(evaluator, folds, choose_across(folds))))
    return dict(auc=found['czsl/auc'],
                **{name: found[f'predict/{name}'] for name in ('seen', 'unseen', 'hm')})


def auc_of(folds: Sequence[Fold]) -> float:
    """AUC of the answers of some folds together, in percent."""
    evaluator = Evaluator(CZSLMetric())
    return float(evaluator.evaluate(len(answer(evaluator, folds)))['czsl/auc'])


def spread(folds: Sequence[Fold], numbers: dict[str, float]) -> dict[str, float]:
    """:func:`~mmcluspro.evaluation.intervals.intervals` of all answers."""
    margins, seen, pairs = [], [], []
    for fold in folds:
        targets = fold.space.lookup(fold.labels['attr'].cpu(), fold.labels['obj'].cpu())
        worlds = Evaluation.of(fold.head, fold.space).worlds
        for start, samples in zip(range(0, len(targets), BATCH), fold.samples(worlds)):
            scores = torch.stack([sample['closed_score'] for sample in samples])
            found = reduce_scores(scores, targets[start:start + BATCH], fold.space.seen,
                                  bias_on='log' if fold.head.link == 'log' else 'score')
            margins.append(found.margin[:, 0, 0])
            seen.append(found.is_seen)
        pairs.append(targets.numpy())
    return intervals(np.concatenate(margins), np.concatenate(seen), np.concatenate(pairs), numbers)


def fitted_by(runner: Runner) -> Any:
    """The loop that fitted, with its folds.

    Raises:
        ValueError: The runner did not train.
    """
    loop = runner._train_loop
    if getattr(loop, 'fitted', None) is None:
        raise ValueError(
            'This model was trained on all photographs, and was measured by cross-validation while '
            'it was: test_metrics.json and report.html next to it have the numbers. To measure '
            'again, run mmcluspro train with the same config.')
    return loop


@LOOPS.register_module()
class HeldOutValLoop(ValLoop):
    """Validates the fits of a cross-validation together; the bias comes from all their answers."""

    held_out = True

    def run(self) -> dict[str, float]:
        """Counts all answers; the hooks see a validation without iterations."""
        folds = fitted_by(self.runner).folds
        self.runner.call_hook('before_val')
        self.runner.call_hook('before_val_epoch')
        metrics = self.evaluator.evaluate(len(answer(self.evaluator, folds)))
        self.runner.call_hook('after_val_epoch', metrics=metrics)
        self.runner.call_hook('after_val')
        return metrics


@LOOPS.register_module()
class HeldOutTestLoop(TestLoop):
    """Tests the fits of a cross-validation together, each with a bias that the others chose.

    Attributes:
        images (np.ndarray): Index of the photograph of each answer.
    """

    held_out = True

    def run(self) -> dict[str, float]:
        """Counts all answers, with intervals, and those of two logistic regressions."""
        loop = fitted_by(self.runner)
        self.runner.call_hook('before_test')
        self.runner.call_hook('before_test_epoch')
        self.images = np.concatenate([fold.images for fold in loop.folds])
        answer(self.evaluator, loop.folds, choose_across(loop.folds))
        metrics = self.evaluator.evaluate(len(self.images))
        numbers = {name: metrics[f'predict/{name}'] for name in ('seen', 'unseen', 'hm')}
        metrics |= {f'interval/{name}': value for name, value in spread(
            loop.folds, dict(numbers, auc=metrics['czsl/auc'])).items()}
        metrics |= {f'regressions/{name}': value for name, value in loop.regressions.items()}
        metrics |= {'held_out/folds': len(loop.folds), 'held_out/images': len(self.images)}
        self.runner.call_hook('after_test_epoch', metrics=metrics)
        self.runner.call_hook('after_test')
        return metrics
