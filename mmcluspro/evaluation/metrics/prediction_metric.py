"""Accuracy as ``mmcluspro predict`` will answer: one bias, one temperature, all known pairs."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from mmcluspro.datasets.space import CompositionSpace
from mmcluspro.registry import METRICS

from ..answers import (
    THRESHOLDS,
    Answers,
    ClassRow,
    Outcomes,
    abstaining,
    accuracies,
    class_tables,
    reduce_answers,
)
from ..calibration import Calibration
from ..chosen import PREFERENCES, Chosen


@METRICS.register_module()
class PredictionMetric(BaseMetric):
    """Accuracy of the answers that ``mmcluspro predict`` gives for these images, in percent.

    ``CZSLMetric`` tries all biases and reports the best of each number. This metric has the bias
    and the temperature that validation chose, and the pairs of all phases to choose from, as
    ``mmcluspro predict`` has. Reports ``accuracy``, ``seen``, ``unseen``, ``hm``, ``confidence``
    (mean probability of the answers), ``coverage_at_T`` and ``accuracy_at_T`` for abstaining below
    T, and ``seen`` and ``unseen`` for the other values of ``--prefer``.

    ``PredictionHook`` adds it to every test, and hands over what validation chose.

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
        self.link = 'log'
        self.chosen = Chosen()
        self._space: CompositionSpace | None = None

    def set_space(self, space: CompositionSpace, link: str) -> None:
        """Sets the pairs whose scores are in ``known_score``, and the link of the head."""
        self._space, self.link = space, link

    def set_chosen(self, chosen: Chosen) -> None:
        """Sets what validation chose for the closed world."""
        self.chosen = chosen

    @property
    def calibration(self) -> Calibration:
        """As ``mmcluspro predict`` has it: none where validation chose none."""
        return self.chosen.calibration or Calibration()

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Keeps seven numbers of each sample."""
        if self._space is None:
            raise ValueError('PredictionMetric does not know the pairs: add PredictionHook to '
                             'default_hooks, or call set_space.')
        scores = torch.stack([sample['known_score'].detach() for sample in data_samples])
        targets = self._space.lookup(*(
            [int(sample[field]) for sample in data_samples] for field in ('attr_label', 'obj_label')
        ))
        answers = reduce_answers(scores, targets, self._space.seen, self.calibration.temperature,
                                 self.link)
        self.results.extend(np.stack(answers, axis=1, dtype=np.float64))

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Numbers of all samples; also logs them and keeps ``tables``."""
        assert self._space is not None
        columns = np.stack(results).T
        answers = Answers(columns[0].astype(int), *columns[1:])
        seen = self._space.seen.numpy()
        pair, probability = answers.given(self.calibration)
        right = pair == answers.target
        numbers = dict(accuracy=100 * float(right.mean()),
                       **accuracies(answers.target, pair, seen),
                       confidence=100 * float(probability.mean()))
        for prefer in PREFERENCES:
            other = self.chosen.preferring(prefer)
            if prefer != 'balanced' and other is not None:
                found = accuracies(answers.target, answers.given(other)[0], seen)
                numbers |= {f'{name}_prefer_{prefer}': value for name, value in found.items()}
        numbers |= abstaining(right, probability, self.thresholds)
        self.outcomes = Outcomes(answers.target, pair, probability)
        self.tables = class_tables(self.outcomes, self._space)
        print_log(_report(numbers, len(seen), self.thresholds), logger='current')
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
