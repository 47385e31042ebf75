"""Trainings on all photographs, measured by cross-validation.

The model in the runner is fitted to all photographs and has nothing left to be tested on, so
validation and test ask fits without a part of the pairs and photographs, each for what it has not
seen: those of :class:`FitLoop` (regressions) or of :class:`RefitLoop` (training in epochs).
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.dist import get_rank, get_world_size
from mmengine.evaluator import Evaluator
from mmengine.registry import MODELS
from mmengine.runner import Runner, TestLoop, ValLoop, load_checkpoint
from torch import Tensor

from mmcluspro.datasets import CompositionSpace
from mmcluspro.datasets.table_file import read_table
from mmcluspro.evaluation import Chosen, CZSLMetric, Evaluation, PredictionMetric
from mmcluspro.evaluation.held_out import CrossValidation, make_folds
from mmcluspro.evaluation.intervals import intervals
from mmcluspro.evaluation.margins import reduce_scores
from mmcluspro.features.store import sample_name
from mmcluspro.models import Candidates
from mmcluspro.models.heads import CompositionHead
from mmcluspro.models.heads.base import LABELS
from mmcluspro.models.heads.regression import RegressionHead, Settings
from mmcluspro.models.structures import PATHS, Features, as_features
from mmcluspro.registry import LOOPS

from .features import run_all
from .hooks.parts import unwrap
from .resuming import EpochLoop, safe_loading

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


TOLERANCE = 1e-4  # of the fits that are only measured


class Fitted(NamedTuple):
    """A fit to N images.

    Attributes:
        head (RegressionHead): With its weights.
        features (Tensor): Shape (N, D).
        labels (dict[str, Tensor]): 'attr', 'obj' and 'pair', (N,) each.
        settings (Settings): Of the fit.
        plain (Settings): Of two logistic regressions.
    """
    head: RegressionHead
    features: Tensor
    labels: dict[str, Tensor]
    settings: Settings
    plain: Settings


@LOOPS.register_module()
class FitLoop(EpochLoop):
    """Chooses settings by cross-validation, fits the head, then validates and saves it.

    For :class:`~mmcluspro.models.heads.RegressionHead`. To the hooks it is one epoch, so
    checkpoints, calibration, the test and the report are those of any training.

    With ``val_cfg=dict(type='mmcluspro.HeldOutValLoop')`` and ``test_cfg`` likewise, fits without a
    part of the pairs and photographs are measured, and all images train what is delivered.

    Args:
        *args: As in mmengine.
        num_folds (int): Parts of the pairs that are held out in turn. Defaults to 5.
        settings (dict, optional): Fields of :class:`~mmcluspro.models.heads.Settings`, to fit
            without cross-validation. Defaults to None.
        **kwargs: As in mmengine.

    Attributes:
        fitted (Fitted | None): What was fitted last.
    """

    def __init__(self, *args: Any, num_folds: int = 5, settings: Mapping[str, Any] | None = None,
                 **kwargs: Any) -> None:
        super().__init__(*args, **dict(dict(max_epochs=1), **kwargs))
        if self._max_epochs != 1:
            raise ValueError(f'FitLoop fits once: leave train_cfg.max_epochs={self._max_epochs} '
                             'out.')
        if num_folds < 2:
            raise ValueError(f'train_cfg.num_folds must be at least 2, got {num_folds}.')
        unknown = set(settings or ()) - set(Settings._fields)
        if unknown:
            raise ValueError(f'train_cfg.settings has the fields {Settings._fields}, got '
                             f'{sorted(unknown)}.')
        self.num_folds = num_folds
        self.settings = None if settings is None else Settings(**settings)
        self.fitted: Fitted | None = None

    def run(self) -> Any:
        """Fits once; a run that is resumed fits again, which takes seconds."""
        self._epoch = self._iter = 0
        return super().run()

    @cached_property
    def folds(self) -> list[Fold]:
        """The fits that are measured."""
        assert self.fitted is not None
        return list(self._folds(self.fitted, self.fitted.settings))

    @cached_property
    def plain_folds(self) -> list[Fold]:
        """Two logistic regressions on the same parts."""
        assert self.fitted is not None
        return list(self._folds(self.fitted, self.fitted.plain))

    @property
    def regressions(self) -> dict[str, float]:
        """Numbers of :attr:`plain_folds`."""
        return delivered(self.plain_folds)

    def run_epoch(self) -> None:
        """Fits; the hooks see an epoch without iterations."""
        runner = self.runner
        head = unwrap(runner.model).head
        if not isinstance(head, RegressionHead):
            raise ValueError(f'train_cfg.type=FitLoop fits a RegressionHead; model.head is a '
                             f'{type(head).__name__}: leave train_cfg.type out.')
        runner.call_hook('before_train_epoch')
        every = np.arange(len(self.dataloader.dataset))  # in their order, whatever the seed
        features, *found = run_all(unwrap(runner.model), self.dataloader, every, lambda batch: [
            batch.features.composition.float(), *(batch.labels[name] for name in LABELS)])
        labels = dict(zip(LABELS, found))
        settings, plain = self._choose(head, features, labels)
        head.fit(features, labels, settings)
        self.fitted = Fitted(head, features, labels, settings, plain)
        runner.call_hook('after_train_epoch')
        self._epoch += 1

    def _choose(self, head: RegressionHead, features: Tensor,
                labels: dict[str, Tensor]) -> tuple[Settings, Settings]:
        """Settings of the fit, and of two logistic regressions."""
        if self.settings is not None:
            return self.settings, self.settings._replace(means=0.0, texts=0.0)
        runner = self.runner
        runner.logger.info(f'Cross-validation over {self.num_folds} parts of the pairs of '
                           f'{len(features)} images')
        choice = CrossValidation(head, features, labels, self.num_folds).choose()
        runner.message_hub.update_info('fit', str(choice))
        runner.logger.info(f'{choice}; {choice.best.settings}')
        return choice.best.settings, choice.regressions.settings

    def _folds(self, fitted: Fitted, settings: Settings) -> Iterator[Fold]:
        """Fits to what each part leaves; other parts than those that chose the settings.

        They depend on the photographs alone, so that every seed delivers the same model.
        """
        head, features, labels = fitted[:3]
        space, pairs = head.space, head.train_candidates.pairs.cpu()
        folds = make_folds(labels['pair'], pairs, self.num_folds, seed=1)
        for train, held, seen in zip(*folds):
            part = CompositionSpace(space.attributes, space.objects, pairs, seen.cpu())
            own, rows = head.for_space(part), seen.cumsum(0) - 1
            known = {name: label[train] for name, label in labels.items()}
            own.fit(features[train], dict(known, pair=rows[known['pair']]), settings, TOLERANCE)
            yield Fold(own, part, held.nonzero()[:, 0].cpu().numpy(), Features(features[held]),
                       {name: label[held] for name, label in labels.items()})


PRIMITIVES = ('attr', 'obj')


@LOOPS.register_module()
class RefitLoop(EpochLoop):
    """mmengine's loop for :class:`~mmcluspro.engine.cross_validation.HeldOutValLoop`.

    ``mmcluspro train photos/ --method cluspro`` writes the parts.

    Args:
        *args: As in mmengine.
        folds (Sequence[str]): Table of each part; the rows with the split 'val' were left out. The
            last checkpoint of the training on the others lies beside it.
        regressions (Mapping[str, float], optional): Numbers of two logistic regressions on the
            same parts. Defaults to None.
        **kwargs: As in mmengine.
    """

    def __init__(self, *args: Any, folds: Sequence[str] = (),
                 regressions: Mapping[str, float] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tables, self.regressions = tuple(folds), dict(regressions or {})

    @property
    def fitted(self) -> bool | None:
        """Whether there are parts to measure with."""
        return bool(self.tables) or None

    @cached_property
    def folds(self) -> list[Fold]:
        """The trainings without a part, and that part."""
        dataset = self.dataloader.dataset
        names = [sample_name(dataset.get_data_info(i)) for i in range(len(dataset))]
        return [self._fold(Path(table), names) for table in self.tables]

    def _fold(self, table: Path, names: list[str]) -> Fold:
        rows = read_table(table)
        held = {row.image for row in rows if row.split == 'val'}
        images = np.array([i for i, name in enumerate(names) if name in held])
        fields = dict(self.runner.cfg.model)
        fields['space'] = dict(fields['space'], table=str(table))
        network = MODELS.build(fields)
        with safe_loading():
            load_checkpoint(network, str(max(table.parent.glob('epoch_*.pth'))),
                            map_location='cpu', logger='silent')
        network.eval()
        found = run_all(network, self.dataloader, images, lambda batch: [
            *(batch.features.paths[path] for path in PATHS),
            *(batch.labels[name] for name in PRIMITIVES)])
        whole = self.dataloader.dataset.space
        seen = {(row.attribute, row.object) for row in rows if row.split == 'train'}
        space = CompositionSpace(whole.attributes, whole.objects, whole.pairs, [
            (whole.attributes[attr], whole.objects[obj]) in seen
            for attr, obj in whole.pairs.tolist()])
        return Fold(network.head, space, images, as_features(found[:len(PATHS)]),
                    dict(zip(PRIMITIVES, found[len(PATHS):])))
