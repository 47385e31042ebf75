"""Seen, unseen, harmonic mean and AUC of compositional zero-shot classification."""
from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log
from torch import Tensor

from mmcluspro.datasets.space import CompositionSpace
from mmcluspro.registry import METRICS

from ..calibration import Calibration, LogSums, reduce_log_sums
from ..chosen import Chosen
from ..curve import Curve, czsl_curve
from ..feasibility import PairGroups, feasibility_scores, threshold_candidates
from ..metric_report import (
    best_threshold,
    calibration_grid,
    format_table,
    summarise,
    summarise_calibration,
)
from ..reduction import Margins, reduce_scores
from ..score_matrix import calculate, check_topk
from ..score_space import check_link, check_space


@METRICS.register_module()
class CZSLMetric(BaseMetric):
    """Accuracy over all calibration biases, in percent, from a few numbers per sample.

    Reports ``seen``, ``unseen``, ``hm``, ``auc`` and ``best_bias`` by the standard protocol,
    ``auc_exact`` and ``hm_exact`` over all biases, ``auc_score`` and ``hm_score`` for a bias that
    is added to the scores as they are, ``attr_acc`` and ``obj_acc`` without a bias; see
    ``docs/evaluation.md``. Reads ``{world}_score``, ``attr_label`` and ``obj_label`` of each
    data sample and the pairs from ``dataset_meta['space']``.

    The bias is added to log scores: log s for the scores of Eq. 13, s itself for a head whose
        scores are logits (:meth:`set_link`).

    After :meth:`set_calibration`, it also reports ``ece``, ``ece_calibrated``, ``temperature`` and
    ``seen_bias``, see :mod:`~mmcluspro.evaluation.calibration`.

    After an evaluation, ``chosen`` holds the values for deployment on every rank (bias, threshold
    and, if requested, temperature and seen bias), and ``curve`` holds the exact seen-unseen curve
    on the first rank.

    Args:
        world (str): 'closed': the pairs of the phase; 'open': all attributes x all objects.
            Defaults to 'closed'.
        topk (int | Sequence[int]): Values of k. The first k keeps the plain names; the names of the
            others end in ``_top{k}``. Defaults to 1.
        bias_on (str): 'log' adds the bias to log scores, 'score' to the scores themselves. It
            affects all numbers except ``auc_score`` and ``hm_score``. Defaults to 'log'.
        threshold (float | str, optional): Open world only. A number T keeps unseen pairs with
            feasibility > T (Eq. 15); seen pairs are always kept. 'search', for ``val_evaluator``,
            tries ``num_thresholds`` values and takes the one with the best AUC. 'stored', for
            ``test_evaluator``, uses the value that ``CalibrationHook`` passes to
            :meth:`set_threshold`. Defaults to None: all pairs.
        feasibility (dict, optional): ``dict(word_vectors=path)`` computes the feasibility from
            word vectors. Defaults to None: :meth:`set_feasibility` provides it.
        num_thresholds (int): Thresholds to search. Defaults to 50.
        collect_device (str): 'cpu' or 'gpu'. Defaults to 'cpu'.
        prefix (str, optional): Defaults to 'czsl', in the open world 'czsl_open'.
        collect_dir (str, optional): Folder for the exchange between ranks. Defaults to None.
    """

    default_prefix = 'czsl'
    calculate = staticmethod(calculate)

    def __init__(self,
                 world: str = 'closed',
                 topk: int | Sequence[int] = 1,
                 bias_on: str = 'log',
                 threshold: float | str | None = None,
                 feasibility: dict | None = None,
                 num_thresholds: int = 50,
                 collect_device: str = 'cpu',
                 prefix: str | None = None,
                 collect_dir: str | None = None) -> None:
        if world not in ('closed', 'open'):
            raise ValueError(f"evaluator.world must be 'closed' or 'open', got {world!r}.")
        check_space(bias_on, 'evaluator.bias_on')
        if threshold is not None and world == 'closed':
            raise ValueError("evaluator.threshold filters the pairs of evaluator.world='open'; "
                             f'leave it None in the closed world, got {threshold!r}.')
        if not (threshold in (None, 'search', 'stored') or isinstance(threshold, (int, float))):
            raise ValueError("evaluator.threshold must be a number, 'search', 'stored' or None, "
                             f'got {threshold!r}.')
        if feasibility is not None and set(feasibility) != {'word_vectors'}:
            raise ValueError('evaluator.feasibility must be None or dict(word_vectors=path), got '
                             f'{feasibility!r}.')
        if num_thresholds < 1:
            raise ValueError(
                f'evaluator.num_thresholds must be at least 1, got {num_thresholds}.')
        super().__init__(collect_device, prefix or ('czsl_open' if world == 'open' else None),
                         collect_dir)
        self.world = world
        self.topk = check_topk(topk)
        self.bias_on = bias_on
        self.threshold = threshold
        self.feasibility = feasibility
        self.num_thresholds = num_thresholds
        self.chosen = Chosen()
        self.curve: Curve | None = None
        self._rho: Tensor | None = None
        self._thresholds: Tensor | None = None
        self._stored: float | None = None
        self.link = 'log'
        self.calibrates = False
        self.calibration: Calibration | None = None

    @property
    def wants_feasibility(self) -> bool:
        """Whether :meth:`set_feasibility` must be called before the evaluation."""
        return self.threshold is not None and self.feasibility is None

    def set_feasibility(self, rho: Tensor) -> None:
        """Sets the feasibility of all pairs; no effect when the config has ``feasibility``.

        Args:
            rho (Tensor): From :func:`~mmcluspro.evaluation.feasibility_scores`, shape (A, O).
        """
        if not rho.isfinite().all():
            raise ValueError('set_feasibility needs finite numbers, got NaN or infinity.')
        self._rho = rho.detach().cpu()

    def set_threshold(self, threshold: float | None) -> None:
        """Sets the value of ``threshold='stored'``; None if there is none."""
        self._stored = threshold

    def set_link(self, link: str) -> None:
        """Sets the link that maps the scores of the head to log scores.

        Args:
            link (str): 'log' for scores of Eq. 13, 'identity' for logits.
        """
        check_link(link)
        self.link = link

    def set_calibration(self, calibration: Calibration | None = None) -> None:
        """Switches on the calibration error of the probabilities.

        Args:
            calibration (Calibration, optional): The values that validation chose. Defaults to None:
                they are chosen on the samples of this evaluation.
        """
        self.calibrates, self.calibration = True, calibration

    def forget_calibration(self) -> None:
        """Switches the calibration error off again."""
        self.calibrates, self.calibration = False, None

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Reduces one batch; ``results`` gets one short array per sample.

        Args:
            data_batch (Any): Unused.
            data_samples (Sequence[dict]): With ``{world}_score`` of shape (P,), ``attr_label``
                and ``obj_label``.
        """
        if not self.results:
            self._prepare()
        names = [sample.get('img_path', len(self.results) + i)
                 for i, sample in enumerate(data_samples)]
        scores = [self._score(sample) for sample in data_samples]
        labels = torch.tensor([[int(sample['attr_label']), int(sample['obj_label'])]
                               for sample in data_samples])
        targets = self._space.lookup(*labels.T)
        if (targets < 0).any():
            row = int((targets < 0).nonzero()[0])
            attr, obj = labels[row].tolist()
            raise ValueError(
                f'The true pair ({self._space.attributes[attr]}, {self._space.objects[obj]}) of '
                f'sample {names[row]} is not among the {len(self._space)} pairs of the '
                f"{self.world} world; does dataset_meta['space'] belong to this phase?")
        bias_on = 'log' if (self.bias_on, self.link) == ('log', 'log') else 'score'
        margins = reduce_scores(scores, targets, self._seen, self._pairs, self.topk, self._groups,
                                names, bias_on)
        rows = margins.to_rows()
        if self.calibrates:
            sums = reduce_log_sums(scores, targets, self._groups,
                                   calibration_grid(self.calibration), self.link)
            rows = [np.concatenate(parts) for parts in zip(sums.to_rows(), rows)]
        self.results.extend(rows)

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Computes all numbers, logs them as a table and keeps ``curve``.

        Args:
            results (list): One array per sample, from all ranks.

        Returns:
            dict: Plain floats.
        """
        if not results:
            raise ValueError('CZSLMetric got no samples; is the dataset of the evaluator empty?')
        width, num, grid = 0, self._groups.num, calibration_grid(self.calibration)
        if self.calibrates:
            width = LogSums.width(num, len(grid))
        margins = Margins.from_rows([row[width:] for row in results], len(self.topk))
        best = best_threshold(margins) if margins.margin.shape[1] > 1 else 0
        numbers = summarise(margins, self.topk, best)
        if width:
            sums = LogSums.from_rows(np.stack([row[:width] for row in results]), num, len(grid))
            numbers |= summarise_calibration(sums, margins.is_seen, self.calibration, best)
        self.curve = czsl_curve(margins.margin[:, best, 0], margins.is_seen)

        num_seen = int(margins.is_seen.sum())
        title = f'{self.world} world: {num_seen} seen, {len(results) - num_seen} unseen images'
        if self._thresholds is not None:
            numbers['threshold'] = float(self._thresholds[best])
            title += f', threshold {numbers["threshold"]:.4f}'
        print_log(f'{title}\n{format_table(numbers, self.topk)}', logger='current')
        if num_seen in (0, len(results)):
            side = 'unseen' if num_seen else 'seen'
            print_log(f'There are no {side} images: {side}, hm and auc are 0 by definition, and '
                      'without unseen images the standard protocol tries the bias 1000 only.',
                      logger='current', level=logging.WARNING)
        return numbers

    def evaluate(self, size: int) -> dict[str, float]:
        """Evaluates as mmengine does, then sets ``chosen`` on every rank."""
        metrics = super().evaluate(size)
        self.chosen = Chosen(metrics[f'{self.prefix}/best_bias'], *(
            metrics.get(f'{self.prefix}/{name}') for name in Chosen._fields[1:]))
        return metrics

    def _score(self, sample: dict) -> Tensor:
        key = f'{self.world}_score'
        if key not in sample:
            raise ValueError(f"evaluator.world='{self.world}' needs {key} in every data sample, "
                             f'got {sorted(sample)}; CandidatesHook, one of default_hooks, '
                             'tells the model which worlds to score.')
        if sample[key].shape != (len(self._space), ):
            raise ValueError(f'{key} must have one score for each of the {len(self._space)} pairs, '
                             f'got shape {tuple(sample[key].shape)}; CandidatesHook, one of '
                             'default_hooks, tells the model which pairs to score.')
        return sample[key].detach()

    def _prepare(self) -> None:
        """Reads the space and groups its pairs by feasibility, once per evaluation."""
        if 'space' not in (self.dataset_meta or {}):
            raise ValueError("CZSLMetric needs dataset_meta['space'] (CompositionSpace.to_dict()); "
                             'use a dataset of mmcluspro or set metric.dataset_meta.')
        space = CompositionSpace.from_dict(self.dataset_meta['space'])  # type: ignore[index]
        self._space = space.open_world() if self.world == 'open' else space
        self._pairs, self._seen = self._space.pairs, self._space.seen
        self._thresholds = None
        self._groups = PairGroups.all_feasible(self._seen)
        if self.threshold is None:
            return
        threshold = self._stored if self.threshold == 'stored' else self.threshold
        if threshold is None:
            raise ValueError(
                "evaluator.threshold='stored' found no stored threshold: test a checkpoint that "
                "was validated with val_evaluator.threshold='search', or set "
                'test_evaluator.threshold to a number. CalibrationHook hands the stored one over: '
                'default_hooks of the config must have it.')
        rho = self._feasibility()[self._pairs[:, 0], self._pairs[:, 1]]
        if threshold == 'search':
            self._thresholds = threshold_candidates(rho, self._seen, self.num_thresholds)
        else:
            self._thresholds = torch.tensor([float(threshold)], dtype=torch.float64)
        self._groups = PairGroups.from_thresholds(rho, self._seen, self._thresholds)

    def _feasibility(self) -> Tensor:
        names = self._space.attributes, self._space.objects
        if self.feasibility is not None:
            from mmcluspro.models.text.word_vectors import embed_names
            attr, obj = (embed_names(part, self.feasibility['word_vectors']) for part in names)
            return feasibility_scores(attr, obj, self._space.train_pairs)
        if self._rho is None:
            raise ValueError(
                f'evaluator.threshold={self.threshold!r} needs feasibility: add CandidatesHook to '
                'default_hooks, set evaluator.feasibility=dict(word_vectors=path), or call '
                'set_feasibility.')
        if self._rho.shape != (len(names[0]), len(names[1])):
            raise ValueError(
                f'set_feasibility got shape {tuple(self._rho.shape)} for a space of '
                f'{len(names[0])} attributes and {len(names[1])} objects.')
        return self._rho
