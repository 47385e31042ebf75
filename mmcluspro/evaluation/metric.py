"""CZSLMetric: seen, unseen, harmonic mean and AUC, from scores of a model or a score matrix."""
from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log
from torch import Tensor

from mmcluspro.datasets.space import CompositionSpace
from mmcluspro.registry import METRICS

from .calibration import (
    INVERSE_TEMPERATURES,
    Calibration,
    Chosen,
    LogSums,
    best_bias,
    confidences,
    expected_calibration_error,
    fit_calibration,
    reduce_log_sums,
)
from .curve import Curve, czsl_curve
from .feasibility import Evaluation, feasibility_scores, threshold_candidates
from .margins import (
    Margins,
    PairGroups,
    best_threshold,
    calculate,
    check_space,
    check_topk,
    reduce_scores,
    summarise,
)
from .tensors import as_matrix, read_tensor

# Weight of the seen accuracy in the harmonic mean by which validation chooses the seen bias of
# ``--prefer seen`` and ``--prefer unseen``: one side counts four times as much as the other.
PREFERRED = {'seen': 0.8, 'unseen': 0.2}


def calibration_grid(calibration: Calibration | None) -> tuple[float, ...]:
    """The inverse temperatures to keep: none but 1 and the one that is known."""
    if calibration is None:
        return INVERSE_TEMPERATURES
    return tuple(sorted({1.0, 1 / calibration.temperature}))


def summarise_calibration(sums: LogSums, is_seen: np.ndarray, calibration: Calibration | None,
                          threshold: int = 0) -> dict[str, float]:
    """``ece`` of s / Σ s and ``ece_calibrated``, in percent, with what calibrates.

    Args:
        sums (LogSums): For the grid of :func:`calibration_grid`.
        is_seen (np.ndarray): Whether the true pair is seen, shape (N,).
        calibration (Calibration, optional): None chooses it here, on these samples.
        threshold (int): Which threshold. Defaults to 0.
    """
    grid = calibration_grid(calibration)
    chosen = calibration or fit_calibration(sums, is_seen, threshold, grid)
    before, after = (
        expected_calibration_error(*confidences(sums, is_seen, which, threshold, grid))
        for which in (Calibration(), chosen))
    numbers = dict(ece=before, ece_calibrated=after, **chosen._asdict())
    if calibration is None:
        numbers |= {f'prefer_{side}': best_bias(sums, is_seen, threshold, weight)
                    for side, weight in PREFERRED.items()}
    return numbers


def format_table(numbers: dict[str, float], topk: Sequence[int]) -> str:
    """One aligned line per k below a line of names."""
    names = ['seen', 'unseen', 'hm', 'auc', 'auc_score', 'hm_score', 'auc_exact', 'hm_exact',
             'attr_acc', 'obj_acc', 'best_bias', 'ece', 'ece_calibrated']
    names = [name for name in names if name in numbers]
    lines = [['', *names]]
    for column, k in enumerate(topk):
        suffix = f'_top{k}' if column else ''
        lines.append([f'top-{k}', *(
            f'{numbers[name + suffix]:{".4g" if name == "best_bias" else ".2f"}}'
            if name + suffix in numbers else '' for name in names)])
    widths = [max(map(len, column)) for column in zip(*lines)]
    return '\n'.join('  '.join(cell.rjust(width) for cell, width in zip(line, widths))
                     for line in lines)


@METRICS.register_module()
class CZSLMetric(BaseMetric):
    """Accuracy over all calibration biases, in percent, from a few numbers per sample.

    Reports ``seen``, ``unseen``, ``hm``, ``auc`` and ``best_bias`` by the standard protocol,
    ``auc_exact`` and ``hm_exact`` over all biases, ``auc_score`` and ``hm_score`` for a bias that
    is added to the scores as they are, ``attr_acc`` and ``obj_acc`` without a bias; see
    ``docs/evaluation.md``. Reads ``{world}_score``, ``attr_label`` and ``obj_label`` of each
    data sample and the pairs from ``dataset_meta['space']``. In the closed world, a classifier of
    mmpretrain with one class for each of ``dataset_meta['classes']`` will do: its ``pred_score``
    is read.

    ``dataset_meta['evaluation']``, an :class:`~mmcluspro.evaluation.Evaluation`, says how the
    scores are read. The bias is added to log scores: log s for the scores of Eq. 13, s itself
    where the link is 'identity'. In a validation, and in a test with a temperature that validation
    chose, the metric also reports ``ece``, ``ece_calibrated``, ``temperature`` and ``seen_bias``,
    see :mod:`~mmcluspro.evaluation.calibration`.

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
            ``test_evaluator``, uses the value that validation chose. Defaults to None: all pairs.
        feasibility (dict, optional): ``dict(word_vectors=path)`` computes the feasibility from
            word vectors. Defaults to None: that of the evaluation, which comes from the head.
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
        self._thresholds: Tensor | None = None
        self._prepared_for: dict | None = None
        self._columns: Tensor | None = None

    @property
    def context(self) -> Evaluation:
        """What ``EvaluationHook`` says about this evaluation."""
        return (self.dataset_meta or {}).get('evaluation') or Evaluation()

    @property
    def wants_feasibility(self) -> bool:
        """Whether the evaluation has to say which pairs are feasible."""
        return self.threshold is not None and self.feasibility is None

    @property
    def calibrates(self) -> bool:
        """Whether the calibration error is reported."""
        return self.context.chosen is None or self.calibration is not None

    @property
    def calibration(self) -> Calibration | None:
        """What validation chose; None if it chose nothing, or if this is the validation."""
        chosen = self.context.chosen
        return None if chosen is None else chosen.get(self.world, Chosen()).calibration

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Reduces one batch; ``results`` gets one short array per sample.

        Args:
            data_batch (Any): Unused.
            data_samples (Sequence[dict]): With ``{world}_score`` of shape (P,), ``attr_label``
                and ``obj_label``.
        """
        if not self.results or self.dataset_meta is not self._prepared_for:
            self._prepare()
        names = [sample.get('img_path', len(self.results) + i)
                 for i, sample in enumerate(data_samples)]
        scores = as_matrix([self._score(sample) for sample in data_samples])
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
        link = self.context.link
        bias_on = 'log' if (self.bias_on, link) == ('log', 'log') else 'score'
        margins = reduce_scores(scores, targets, self._seen, self._pairs, self.topk, self._groups,
                                names, bias_on, read_tensor)
        rows = margins.to_rows()
        if self.calibrates:
            sums = reduce_log_sums(scores, targets, self._groups,
                                   calibration_grid(self.calibration), link)
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
        self.chosen = self._choice({name: metrics.get(f'{self.prefix}/{name}')
                                    for name in ('best_bias', *Chosen._fields)})
        return metrics

    def choose(self, results: list) -> Chosen:
        """What a part of ``results`` chooses for the others."""
        return self._choice(self.compute_metrics(results))

    @staticmethod
    def _choice(numbers: Mapping[str, float | None]) -> Chosen:
        return Chosen(numbers['best_bias'], *(numbers.get(name) for name in Chosen._fields[1:]))

    def _score(self, sample: dict) -> Tensor:
        key = f'{self.world}_score'
        if key not in sample and 'pred_score' in sample and self.world == 'closed':
            return self._of_classes(sample['pred_score'])
        if key not in sample:
            raise ValueError(f"evaluator.world='{self.world}' needs {key} in every data sample, "
                             f'got {sorted(sample)}; EvaluationHook, one of default_hooks, '
                             'tells the model which worlds to score.')
        if sample[key].shape != (len(self._space), ):
            raise ValueError(f'{key} must have one score for each of the {len(self._space)} pairs, '
                             f'got shape {tuple(sample[key].shape)}; EvaluationHook, one of '
                             'default_hooks, tells the model which pairs to score.')
        return sample[key].detach()

    def _of_classes(self, scores: Tensor) -> Tensor:
        """Of a classifier of another project, over the pairs of all phases: those of this one."""
        known = (self.dataset_meta or {}).get('known_pairs', ())
        if len(scores) != len(known):
            raise ValueError(
                f'pred_score has {len(scores)} numbers, but there are {len(known)} pairs in all '
                "phases: set head.num_classes to the length of dataset_meta['classes'], which "
                'gt_label counts.')
        if self._columns is None:
            place = {tuple(pair): row for row, pair in enumerate(known)}
            self._columns = torch.tensor([place[tuple(pair)] for pair in self._pairs.tolist()])
        return scores.detach()[self._columns.to(scores.device)]

    def _prepare(self) -> None:
        """Reads the space and groups its pairs by feasibility.

        Once per evaluation, and again where the samples that follow have other seen pairs; all are
        counted together, so the thresholds to search stay.
        """
        if 'space' not in (self.dataset_meta or {}):
            raise ValueError("CZSLMetric needs dataset_meta['space'] (CompositionSpace.to_dict()); "
                             'use a dataset of mmcluspro or set metric.dataset_meta.')
        space = CompositionSpace.from_dict(self.dataset_meta['space'])  # type: ignore[index]
        self._space = space.open_world() if self.world == 'open' else space
        self._pairs, self._seen = self._space.pairs, self._space.seen
        self._prepared_for, self._columns = self.dataset_meta, None
        kept = self._thresholds if self.results else None
        self._thresholds = None
        self._groups = PairGroups.all_feasible(self._seen)
        if self.threshold is None:
            return
        stored = (self.context.chosen or {}).get(self.world, Chosen()).threshold
        threshold = stored if self.threshold == 'stored' else self.threshold
        if threshold is None:
            raise ValueError(
                "evaluator.threshold='stored' found no stored threshold: test a checkpoint that "
                "was validated with val_evaluator.threshold='search', or set "
                'test_evaluator.threshold to a number. EvaluationHook hands the stored one over: '
                'default_hooks of the config must have it.')
        rho = self._feasibility()[self._pairs[:, 0], self._pairs[:, 1]]
        if threshold == 'search':
            self._thresholds = threshold_candidates(
                rho, self._seen, self.num_thresholds) if kept is None else kept
        else:
            self._thresholds = torch.tensor([float(threshold)], dtype=torch.float64)
        self._groups = PairGroups.from_thresholds(rho, self._seen, self._thresholds)

    def _feasibility(self) -> Tensor:
        names = self._space.attributes, self._space.objects
        if self.feasibility is not None:
            from mmcluspro.models.text.words import embed_names
            attr, obj = (embed_names(part, self.feasibility['word_vectors']) for part in names)
            return feasibility_scores(attr, obj, self._space.train_pairs)
        rho = self.context.rho
        if rho is None:
            raise ValueError(
                f'evaluator.threshold={self.threshold!r} needs feasibility: add EvaluationHook to '
                'default_hooks, or set evaluator.feasibility=dict(word_vectors=path).')
        if rho.shape != (len(names[0]), len(names[1])):
            raise ValueError(
                f'The feasibility of the evaluation has shape {tuple(rho.shape)} for a space of '
                f'{len(names[0])} attributes and {len(names[1])} objects.')
        if not rho.isfinite().all():
            raise ValueError('The feasibility of the evaluation holds NaN or infinity.')
        return rho.cpu()
