"""Features and answers of a checkpoint for the images of a phase."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import default_collate
from mmengine.registry import DefaultScope
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset

from mmcluspro.apis.prototype_images import middle_square
from mmcluspro.datasets import CZSLDataset
from mmcluspro.datasets.splits import PHASES
from mmcluspro.evaluation import log_scores
from mmcluspro.features.cached import CachedFeatures
from mmcluspro.models import Candidates, Features
from mmcluspro.models.image_run import run_images
from mmcluspro.registry import DATASETS
from mmcluspro.utils.progress import Progress

# Where our configs look for the published datasets.
ROOTS = {'mmcluspro.MITStates': 'data/mit-states', 'mmcluspro.UTZappos': 'data/ut-zap50k',
         'mmcluspro.CGQA': 'data/cgqa', 'mmcluspro.Fashion': 'data/fashion'}


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


def phase_dataset(model: Any, phase: str, config: Config | None = None,
                  **options: Any) -> CZSLDataset:
    """The images of a phase, prepared as in a test: without augmentation, even in training.

    The checkpoint names the dataset of this package and the preparation of images; the user names
    the folder. Nothing else of the file is built.

    Args:
        model (CompositionalClassifier): Of :func:`mmcluspro.apis.load_model`.
        phase (str): 'train', 'val' or 'test'.
        config (Config, optional): The user's own config, whose datasets are built instead.
            Defaults to None.
        **options: Fields of the dataset, such as ``data_root``.

    Returns:
        CZSLDataset: Of :mod:`mmcluspro.datasets`.
    """
    if phase not in PHASES:
        raise ValueError(f"phase must be 'train', 'val' or 'test', got {phase!r}.")
    config = model.cfg if config is None else config
    arguments = _described(model) if config is None else _configured(config, phase)
    arguments.update(options, phase=phase, test_mode=True)
    if 'features' in arguments and not any(
            isinstance(part, CachedFeatures) for part in model.modules()):
        del arguments['features']  # of the training: this model reads images
    arguments.setdefault('data_root', ROOTS.get(arguments['type'], ''))
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        return DATASETS.build(arguments)


def _described(model: Any) -> dict[str, Any]:
    data, prepared = (model.description.get(name) for name in ('data', 'preparation'))
    if data is None or prepared is None:
        raise ValueError(
            'The checkpoint names no dataset of mmcluspro'
            + ('' if data is None else ' whose pictures are resized and cropped only')
            + ': its images are not known. Give the config file of the training with --config.')
    return dict(data, type=f'mmcluspro.{data["type"]}', pipeline=[
        *([] if data['type'] == 'ShapesCZSL' else [
            dict(type='mmcluspro.LoadPicture', decoder=prepared['decoder'],
                 background=prepared.get('background', 'white') or 'none')]),
        dict(type='mmcluspro.PrepareImage', steps=prepared['steps']),
        dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label'])])


def _configured(config: Config, phase: str) -> dict[str, Any]:
    fields = {}
    for name in (phase, 'test'):
        try:
            fields[name] = config[f'{name}_dataloader'].dataset
        except (KeyError, AttributeError, TypeError):
            raise ValueError(f'The config has no {name}_dataloader.dataset: its images are not '
                             'known.') from None
    return dict(fields[phase], pipeline=fields['test'].pipeline)


def evenly(total: int, count: int | None) -> list[int]:
    """At most ``count`` indices below ``total``, evenly spread; all of them for None."""
    if count is not None and count < 1:
        raise ValueError(f'The number of images must be at least 1, got {count}.')
    count = total if count is None else min(count, total)
    return np.linspace(0, total - 1, count).round().astype(int).tolist()


@torch.no_grad()
def run_phase(model: Any, dataset: CZSLDataset, indices: Sequence[int] | None = None,
              bias: float = 0.0, batch_size: int = 64, progress: str = '') -> Iterator[PhaseBatch]:
    """Features and closed-world answers, one batch at a time; scores are not kept.

    Args:
        model (CompositionalClassifier): Of :func:`mmcluspro.apis.load_model`.
        dataset (CZSLDataset): Of :func:`phase_dataset`.
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
        scores = log_scores(pair, model.head.link)
        answer = (scores + shift.to(scores)).argmax(dim=1)
        yield PhaseBatch(index, labels, unit_features(feats), answer.cpu())


@torch.no_grad()
def scored_batches(model: Any, dataset: CZSLDataset, candidates: Candidates,
                   indices: Sequence[int] | None = None, batch_size: int = 64, progress: str = ''
                   ) -> Iterator[tuple[Tensor, Features, dict[str, Tensor], Tensor]]:
    """Scores images as validation does, after ``head.adapt``.

    Args:
        model (CompositionalClassifier): Any classifier of mmcluspro.
        dataset (CZSLDataset): Of :func:`phase_dataset`.
        candidates (Candidates): The P pairs to choose from.
        indices (Sequence[int], optional): Images to look at. Defaults to None, all.
        batch_size (int): Defaults to 64.
        progress (str): As in :func:`run_phase`. Defaults to ''.

    Yields:
        tuple: As :func:`image_batches`, and pair scores, shape (B, P).
    """
    model.head.forget_adaptation()
    for index, feats, labels in image_batches(model, dataset, indices, batch_size, progress):
        model.head.adapt(feats)
        yield index, feats, labels, model.head.score(feats, candidates).pair


@torch.no_grad()
def image_batches(model: Any, dataset: CZSLDataset, indices: Sequence[int] | None = None,
                  batch_size: int = 64, progress: str = ''
                  ) -> Iterator[tuple[Tensor, Features, dict[str, Tensor]]]:
    """Runs a model over images, without scoring them.

    Args:
        model (CompositionalClassifier): Any classifier of mmcluspro.
        dataset (CZSLDataset): Of :func:`phase_dataset`.
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
    for feats, labels in run_images(model, _tracked(loader, progress)):
        found = {name: label.cpu() for name, label in labels.items()}
        size = len(found['attr'])
        yield torch.tensor(indices[start:start + size]), feats, found
        start += size


def unit_features(feats: Features) -> dict[str, Tensor]:
    """Unit-norm attribute and object features on the CPU, shape (B, D) each."""
    return {name: F.normalize(part.float(), dim=1).cpu()
            for name, part in feats.primitives.items()}


def _workers(model: Any, phase: str) -> int:
    config = getattr(model, 'cfg', None) or {}
    return (config.get(f'{phase}_dataloader') or {}).get('num_workers', 0)


def _tracked(loader: DataLoader, words: str) -> Iterator[Any]:
    """Batches; a line on stderr says how far it is, and how long it still takes."""
    total = len(loader.dataset)  # type: ignore[arg-type]
    with Progress(words, total, silent=not words) as progress:
        for batch in loader:
            yield batch
            progress.add(min(loader.batch_size or 1, total - progress.done))


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
