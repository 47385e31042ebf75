r"""Answers as ``mmcluspro predict`` gives them, from a few numbers per image.

The bias moves all seen pairs together, so the best seen and the best unseen pair decide every
answer, and two log-sums its probability:

.. math:: q = \exp(z / T) \,/\, \big(e^{-\beta / T} \sum_{seen} e^{z_c / T}
    + \sum_{unseen} e^{z_c / T}\big)

Accuracy as ``mmcluspro predict`` will answer: one bias, one temperature, all known pairs.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log
from torch import Tensor

from mmcluspro.datasets.space import CompositionSpace
from mmcluspro.registry import METRICS

from .calibration import PREFERENCES, Calibration, Chosen
from .feasibility import Evaluation
from .tensors import log_scores

THRESHOLDS = (0.3, 0.5, 0.7, 0.9)
LEANINGS = tuple(prefer for prefer in PREFERENCES if prefer != 'balanced')
UNKNOWN = -1  # validation chose no such bias


class Answers(NamedTuple):
    """Numbers kept for N images; all arrays have shape (N,)."""

    target: np.ndarray  # row of the true pair
    seen_pair: np.ndarray  # best seen pair
    seen_z: np.ndarray
    seen_sum: np.ndarray  # log of the sum of exp(z / T) over the seen pairs
    unseen_pair: np.ndarray
    unseen_z: np.ndarray
    unseen_sum: np.ndarray

    def given(self, calibration: Calibration) -> tuple[np.ndarray, np.ndarray]:
        """Answered pair and its probability, both of shape (N,).

        Args:
            calibration (Calibration): Any seen bias; the temperature of :func:`reduce_answers`.
        """
        bias, temperature = calibration.seen_bias, calibration.temperature
        seen = self.seen_z - bias
        total = np.logaddexp(self.seen_sum - bias / temperature, self.unseen_sum)
        best = np.maximum(seen, self.unseen_z) / temperature
        pair = np.where(seen >= self.unseen_z, self.seen_pair, self.unseen_pair)
        return pair.astype(int), np.exp(np.minimum(best - total, 0))


def reduce_answers(scores: Tensor, targets: Tensor, seen: Tensor, temperature: float = 1.0,
                   link: str = 'log') -> Answers:
    """Reduces scores to :class:`Answers`.

    Args:
        scores (Tensor): Shape (N, P).
        targets (Tensor): Row of the true pair, shape (N,).
        seen (Tensor): Which pairs are seen, shape (P,).
        temperature (float): T. Defaults to 1.
        link (str): As in :func:`~mmcluspro.evaluation.probabilities`. Defaults to 'log'.
    """
    z = log_scores(scores, link).double()
    parts = [targets]
    for side in (seen, ~seen):
        part = z.masked_fill(~side.to(z.device), -np.inf)
        best = part.argmax(dim=1)
        parts += [best, part.gather(1, best[:, None])[:, 0],
                  (part / temperature).logsumexp(dim=1)]
    return Answers(*(part.cpu().numpy() for part in parts))


def accuracies(right: np.ndarray, seen: np.ndarray) -> dict[str, float]:
    """``seen``, ``unseen`` and their harmonic mean ``hm``, in percent; 0 without images.

    Args:
        right (np.ndarray): Whether each answer is right, shape (N,).
        seen (np.ndarray): Whether the true pair is seen, shape (N,).
    """
    first, second = (100 * float(right[side].mean()) if side.any() else 0.0
                     for side in (seen, ~seen))
    total = first + second
    return dict(seen=first, unseen=second, hm=2 * first * second / total if total else 0.0)


def abstaining(right: np.ndarray, probability: np.ndarray,
               thresholds: Sequence[float] = THRESHOLDS) -> dict[str, float]:
    """Share of images that are answered at each threshold, and their accuracy, in percent.

    Args:
        right (np.ndarray): Whether the answer is right, shape (N,).
        probability (np.ndarray): Of the answer, shape (N,).
        thresholds (Sequence[float]): As ``--threshold`` of ``mmcluspro predict``.

    Returns:
        dict: ``coverage_at_0.5`` and, where any image is answered, ``accuracy_at_0.5`` …
    """
    numbers = {}
    for threshold in thresholds:
        sure = probability >= threshold
        numbers[f'coverage_at_{threshold:g}'] = 100 * float(sure.mean())
        if sure.any():
            numbers[f'accuracy_at_{threshold:g}'] = 100 * float(right[sure].mean())
    return numbers


class Outcomes(NamedTuple):
    """True and answered pairs of N images; rows of a label space, shape (N,) each."""

    target: np.ndarray  # row of the true pair
    answer: np.ndarray  # row of the answered pair
    probability: np.ndarray  # of the answer
    seen: np.ndarray  # whether the training of the model that answers had the true pair

    @property
    def right(self) -> np.ndarray:
        """Whether each answer is right, shape (N,)."""
        return self.answer == self.target


class ClassRow(NamedTuple):
    """Results for the images of one pair, attribute or object."""

    name: str
    seen: bool | None  # of pairs: whether training had it; with held-out pairs, a row for each
    images: int
    accuracy: float  # percent
    confidence: float  # mean probability of the answers, percent
    mistaken_for: str  # the most frequent wrong answer, '' without any


def by_class(target: np.ndarray, answer: np.ndarray, probability: np.ndarray,
             names: Sequence[str], seen: np.ndarray | None = None) -> list[ClassRow]:
    """Classes with images, worst first; among equals, the most frequent first.

    Args:
        target (np.ndarray): True class, shape (N,).
        answer (np.ndarray): Answered class, shape (N,).
        probability (np.ndarray): Of the answer, shape (N,).
        names (Sequence[str]): Of the classes, C of them.
        seen (np.ndarray, optional): For pairs: whether the true pair is seen, shape (N,). A pair
            that is both, in turn, has two rows. Defaults to None.
    """
    rows = []
    groups = 2 * target + (0 if seen is None else seen)
    for group in np.unique(groups):
        mine, label = groups == group, int(group) // 2
        wrong, counts = np.unique(answer[mine & (answer != label)], return_counts=True)
        rows.append(ClassRow(
            names[label], None if seen is None else bool(group % 2), int(mine.sum()),
            100 * float((answer[mine] == label).mean()), 100 * float(probability[mine].mean()),
            names[wrong[counts.argmax()]] if len(wrong) else ''))
    return sorted(rows, key=lambda row: (row.accuracy, -row.images, row.name))


def class_tables(outcomes: Outcomes, space: CompositionSpace) -> dict[str, list[ClassRow]]:
    """:func:`by_class` of 'pairs', 'attributes' and 'objects'.

    Args:
        outcomes (Outcomes): Rows of the space.
        space (CompositionSpace): The pairs to choose from.
    """
    target, answer, probability, seen = outcomes
    sides = space.pairs.numpy().T
    names = [f'{space.attributes[attr]} {space.objects[obj]}' for attr, obj in sides.T]
    return dict(pairs=by_class(target, answer, probability, names, seen), **{
        kind: by_class(side[target], side[answer], probability, words)
        for kind, side, words in zip(('attributes', 'objects'), sides,
                                     (space.attributes, space.objects))})


@METRICS.register_module()
class PredictionMetric(BaseMetric):
    """Accuracy of the answers that ``mmcluspro predict`` gives for these images, in percent.

    ``CZSLMetric`` tries all biases and reports the best of each number. This metric has the bias
    and the temperature that validation chose, and the pairs of all phases to choose from, as
    ``mmcluspro predict`` has. Reports ``accuracy``, ``seen``, ``unseen``, ``hm``, ``confidence``
    (mean probability of the answers), ``coverage_at_T`` and ``accuracy_at_T`` for abstaining below
    T, and ``seen`` and ``unseen`` for the other values of ``--prefer``.

    ``EvaluationHook`` adds it to every test, and hands over what validation chose.

    Args:
        thresholds (Sequence[float]): Probabilities below which to abstain.
        collect_device (str): 'cpu' or 'gpu'. Defaults to 'cpu'.
        prefix (str, optional): Defaults to 'predict'.
        collect_dir (str, optional): Folder for the exchange between ranks. Defaults to None.

    Attributes:
        tables (dict[str, list[ClassRow]]): By 'pairs', 'attributes' and 'objects', worst first;
            after an evaluation, on the first rank.
        outcomes (Outcomes | None): Of every image in the order of the dataset, likewise.
    """

    default_prefix = 'predict'

    def __init__(self, thresholds: Sequence[float] = THRESHOLDS, collect_device: str = 'cpu',
                 prefix: str | None = None, collect_dir: str | None = None) -> None:
        super().__init__(collect_device, prefix, collect_dir)
        self.thresholds = tuple(thresholds)
        self.tables: dict[str, list[ClassRow]] = {}
        self.outcomes: Outcomes | None = None

    @property
    def context(self) -> Evaluation:
        """What ``EvaluationHook`` says about this evaluation."""
        found = (self.dataset_meta or {}).get('evaluation')
        if found is None or found.known is None:
            raise ValueError('PredictionMetric does not know the pairs: add EvaluationHook to '
                             'default_hooks.')
        return found

    @property
    def chosen(self) -> Chosen:
        """What validation chose for the closed world."""
        own = self.context
        return own.delivered or (own.chosen or {}).get('closed', Chosen())

    @property
    def _space(self) -> CompositionSpace:
        space = self.context.known
        assert space is not None  # context looked
        return space

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Keeps a few numbers of each sample."""
        space = self._space
        scores = torch.stack([sample['known_score'].detach() for sample in data_samples])
        calibration = self.chosen.calibration or Calibration()
        targets = space.lookup(*(
            [int(sample[field]) for sample in data_samples] for field in ('attr_label', 'obj_label')
        ))
        answers = reduce_answers(scores, targets, space.seen, calibration.temperature,
                                 self.context.link)
        # The bias may be another one for the next samples, so it is applied here.
        others = (self.chosen.preferring(prefer) for prefer in LEANINGS)
        self.results.extend(np.stack([
            answers.target, *answers.given(calibration),
            space.seen.numpy()[answers.target],
            *(np.full(len(targets), UNKNOWN) if other is None else answers.given(other)[0]
              for other in others)], axis=1, dtype=np.float64))

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Numbers of all samples; also logs them and keeps ``tables``."""
        target, pair, probability, is_seen, *others = np.stack(results).T
        outcomes = Outcomes(target.astype(int), pair.astype(int), probability, is_seen.astype(bool))
        numbers = dict(accuracy=100 * float(outcomes.right.mean()),
                       **accuracies(outcomes.right, outcomes.seen),
                       confidence=100 * float(probability.mean()))
        for prefer, other in zip(LEANINGS, others):
            if not (other == UNKNOWN).any():
                found = accuracies(other == target, outcomes.seen)
                numbers |= {f'{name}_prefer_{prefer}': value for name, value in found.items()}
        numbers |= abstaining(outcomes.right, probability, self.thresholds)
        self.outcomes = outcomes
        self.tables = class_tables(outcomes, self._space)
        print_log(_report(numbers, len(self._space), self.thresholds), logger='current')
        return numbers


def _report(numbers: dict[str, float], num_pairs: int, thresholds: Sequence[float]) -> str:
    """The lines for the log."""
    lines = [f'as mmcluspro predict will answer, from {num_pairs} pairs',
             f'{"":<22}{"seen":>7}{"unseen":>8}{"hm":>7}']
    for prefer, suffix in (('seen', '_prefer_seen'), ('balanced', ''),
                           ('unseen', '_prefer_unseen')):
        if f'seen{suffix}' in numbers:
            cells = [numbers[f'{name}{suffix}'] for name in ('seen', 'unseen', 'hm')]
            name = 'default (balanced)' if prefer == 'balanced' else f'--prefer {prefer}'
            lines.append(f'{name:<22}{cells[0]:>7.1f}{cells[1]:>8.1f}{cells[2]:>7.1f}')
    lines.append(f'all images: {numbers["accuracy"]:.1f} right, mean probability '
                 f'{numbers["confidence"]:.1f}')
    for threshold in thresholds:
        coverage = numbers[f'coverage_at_{threshold:g}']
        accuracy = numbers.get(f'accuracy_at_{threshold:g}')
        lines.append(f'--threshold {threshold:g}: answers {coverage:.1f} % of the images'
                     + (f', {accuracy:.1f} % of them right' if accuracy is not None else ''))
    return '\n'.join(lines)
