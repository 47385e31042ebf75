"""Features, closed-world answers and predictions of a checkpoint for the images of a phase."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from mmengine.dataset import default_collate
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset

from mmcluspro.artefact import TrainedModel
from mmcluspro.datasets import CompositionSpace, CZSLDataset
from mmcluspro.evaluation import Outcomes, log_scores, reduce_answers
from mmcluspro.models import Candidates
from mmcluspro.models.classifier import run_images
from mmcluspro.models.structures import Features
from mmcluspro.utils.progress import Progress


@dataclass
class PhaseBatch:
    """Results of a batch of B images.

    Args:
        index (Tensor): Indices in the dataset, shape (B,).
        labels (dict[str, Tensor]): 'attr', 'obj' and 'pair' labels, shape (B,) each.
        features (dict[str, Tensor]): Unit-norm 'attr' and 'obj' features, shape (B, D) each;
            empty for a model without these paths.
        answer (Tensor): Best pair, a row of the dataset's ``space.pairs``, shape (B,).
    """
    index: Tensor
    labels: dict[str, Tensor]
    features: dict[str, Tensor]
    answer: Tensor


def evenly(total: int, count: int | None) -> list[int]:
    """At most ``count`` indices below ``total``, evenly spread; all of them for None."""
    if count is not None and count < 1:
        raise ValueError(f'The number of images must be at least 1, got {count}.')
    count = total if count is None else min(count, total)
    return np.linspace(0, total - 1, count).round().astype(int).tolist()


@torch.no_grad()
def run_phase(model: TrainedModel, dataset: CZSLDataset, indices: Sequence[int] | None = None,
              bias: float = 0.0, batch_size: int = 64, progress: str = '') -> Iterator[PhaseBatch]:
    """Features and closed-world answers, one batch at a time; scores are not kept.

    Args:
        model (TrainedModel): The model.
        dataset (CZSLDataset): Of :meth:`TrainedModel.dataset`.
        indices (Sequence[int], optional): Images to look at. Defaults to None, all.
        bias (float): Added to the log scores of unseen pairs before the best one is taken.
            Defaults to 0.
        batch_size (int): Defaults to 64.
        progress (str): Title of a progress line on stderr. Defaults to '': none.

    Yields:
        PhaseBatch: On the CPU.
    """
    candidates = Candidates.from_space(dataset.space)
    shift = bias * (~dataset.space.seen).float()
    for index, feats, labels, pair in scored_batches(
            model, dataset, candidates, indices, batch_size, progress):
        scores = log_scores(pair, model.network.head.link)
        answer = (scores + shift.to(scores)).argmax(dim=1)
        yield PhaseBatch(index, labels, unit_features(feats), answer.cpu())


@torch.no_grad()
def scored_batches(model: TrainedModel, dataset: CZSLDataset, candidates: Candidates,
                   indices: Sequence[int] | None = None, batch_size: int = 64, progress: str = ''
                   ) -> Iterator[tuple[Tensor, Features, dict[str, Tensor], Tensor]]:
    """Scores images as validation does, after ``head.adapt``.

    Args:
        model (TrainedModel): The model.
        dataset (CZSLDataset): Of :meth:`TrainedModel.dataset`.
        candidates (Candidates): The P pairs to choose from.
        indices (Sequence[int], optional): Images to look at. Defaults to None, all.
        batch_size (int): Defaults to 64.
        progress (str): As in :func:`run_phase`. Defaults to ''.

    Yields:
        tuple: As :func:`image_batches`, and pair scores, shape (B, P).
    """
    head = model.network.head
    head.forget_adaptation()
    for index, feats, labels in image_batches(model, dataset, indices, batch_size, progress):
        head.adapt(feats)
        yield index, feats, labels, head.score(feats, candidates).pair


@torch.no_grad()
def image_batches(model: TrainedModel, dataset: CZSLDataset, indices: Sequence[int] | None = None,
                  batch_size: int = 64, progress: str = ''
                  ) -> Iterator[tuple[Tensor, Features, dict[str, Tensor]]]:
    """Runs a model over images, without scoring them.

    Args:
        model (TrainedModel): The model.
        dataset (CZSLDataset): Of :meth:`TrainedModel.dataset`.
        indices (Sequence[int], optional): Images to look at. Defaults to None, all.
        batch_size (int): Defaults to 64.
        progress (str): As in :func:`run_phase`. Defaults to ''.

    Yields:
        tuple: Places in the dataset, shape (B,), features on the model's device, and labels on the
        CPU.
    """
    indices = list(range(len(dataset))) if indices is None else list(indices)
    if not indices:
        raise ValueError(f'There are no {dataset.phase} images to look at.')
    loader: DataLoader = DataLoader(
        Subset(dataset, indices), batch_size, collate_fn=default_collate,
        num_workers=_workers(model, dataset.phase))
    start = 0
    for batch in run_images(model.network, _tracked(loader, progress)):
        found = {name: label.cpu() for name, label in batch.labels.items()}
        size = len(found['attr'])
        yield torch.tensor(indices[start:start + size]), batch.features, found
        start += size


def unit_features(feats: Features) -> dict[str, Tensor]:
    """Unit-norm attribute and object features on the CPU, shape (B, D) each."""
    return {name: F.normalize(part.float(), dim=1).cpu()
            for name, part in feats.primitives.items()}


def _workers(model: TrainedModel, phase: str) -> int:
    config = model.config or {}
    return (config.get(f'{phase}_dataloader') or {}).get('num_workers', 0)


def _tracked(loader: DataLoader, words: str) -> Iterator[Any]:
    """Batches; a line on stderr says how far it is, and how long it still takes."""
    total = len(loader.dataset)  # type: ignore[arg-type]
    with Progress(words, total, silent=not words) as progress:
        for batch in loader:
            yield batch
            progress.add(min(loader.batch_size or 1, total - progress.done))


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


def middle_square(image: Image.Image) -> Image.Image:
    """The largest square in the middle of a picture."""
    edge = min(image.size)
    left, top = (image.width - edge) // 2, (image.height - edge) // 2
    return image.crop((left, top, left + edge, top + edge))


def picture(dataset: CZSLDataset, index: int, side: int | None = None) -> np.ndarray:
    """The image itself, as people see it: RGB uint8, shape (H, W, 3).

    Args:
        dataset (CZSLDataset): Whose samples have ``img`` (BGR) or ``img_path``.
        index (int): Place of the sample.
        side (int, optional): Cut out the middle square and shrink it to this many pixels.
            Defaults to None: as it is.
    """
    info = dataset.get_data_info(index)
    if 'img' in info:
        image = Image.fromarray(np.ascontiguousarray(info['img'][..., ::-1]))
    else:
        try:
            with Image.open(info['img_path']) as opened:
                image = opened.convert('RGB')
        except OSError as error:
            raise ValueError(f'The image {info["img_path"]} cannot be read: {error}') from None
    if side is not None:
        image = middle_square(image)
        if image.width > side:
            image = image.resize((side, side), Image.Resampling.LANCZOS)
    return np.asarray(image)
