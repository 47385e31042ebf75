"""A training without steps: the head is fitted to the features of all images."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation.held_out import CrossValidation, make_folds
from mmcluspro.models.heads.base import LABELS
from mmcluspro.models.heads.regression import RegressionHead, Settings
from mmcluspro.models.structures import Features
from mmcluspro.registry import LOOPS

from .held_out_loops import Fold, delivered
from .hooks.parts import unwrap
from .loops import EpochLoop
from .primitive_features import run_all

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
