"""Answers for the images of a phase, as ``mmcluspro predict`` gives them."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mmcluspro.artefact import TrainedModel
from mmcluspro.datasets import CompositionSpace, CZSLDataset
from mmcluspro.evaluation import Outcomes, reduce_answers

from .phase_run import scored_batches


@dataclass
class PhaseAnswers:
    """Truth and answers of N images.

    Args:
        space (CompositionSpace): The pairs to choose from.
        index (np.ndarray): Indices of the images in their dataset, shape (N,).
        outcomes (Outcomes): Rows of ``space.pairs``, and probabilities.
    """
    space: CompositionSpace
    index: np.ndarray
    outcomes: Outcomes

    @property
    def seen(self) -> np.ndarray:
        """Whether the true pair of each image was seen in training, shape (N,)."""
        return self.outcomes.seen

    def pair_names(self, row: int) -> tuple[str, str]:
        """Attribute and object of a row of the space."""
        attr, obj = self.space.pairs[row].tolist()
        return self.space.attributes[attr], self.space.objects[obj]

    def mistakes(self, count: int | None = None) -> list[int]:
        """Images that are answered wrongly, the most confident first.

        Args:
            count (int, optional): How many at most. Defaults to None: all.

        Returns:
            list[int]: Rows of the arrays here.
        """
        wrong = np.flatnonzero(~self.outcomes.right)
        order = np.argsort(-self.outcomes.probability[wrong], kind='stable')
        return wrong[order][:count].tolist()


@torch.no_grad()
def answer_phase(model: TrainedModel, dataset: CZSLDataset, indices: Sequence[int] | None = None,
                 seen_bias: float | None = None, batch_size: int = 64,
                 progress: str = '') -> PhaseAnswers:
    """Predicts the images of a phase with a checkpoint.

    Args:
        model (TrainedModel): The model.
        dataset (CZSLDataset): Of :meth:`TrainedModel.dataset`.
        indices (Sequence[int], optional): Images to use. Defaults to None: all.
        seen_bias (float, optional): Subtracted from the log scores of seen pairs. Defaults to
            None: what validation chose.
        batch_size (int): Defaults to 64.
        progress (str): Title of a progress line on stderr. Defaults to '': none.
    """
    space, head = model.space, model.network.head
    calibration = model.calibration(seen_bias=seen_bias, warn=False)
    places, found = [], []
    for index, _, labels, scores in scored_batches(
            model, dataset, head.known_candidates, indices, batch_size, progress):
        answers = reduce_answers(scores, space.lookup(labels['attr'], labels['obj']), space.seen,
                                 calibration.temperature, head.link)
        places.append(index.numpy())
        found.append(Outcomes(answers.target, *answers.given(calibration),
                              space.seen.numpy()[answers.target]))
    return PhaseAnswers(space, np.concatenate(places), Outcomes(*map(np.concatenate, zip(*found))))
