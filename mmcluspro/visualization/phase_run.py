"""Runs a checkpoint over the images of a phase, batch by batch: the one place that does."""
from __future__ import annotations

import sys
import time
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

from mmcluspro.datasets import CZSLDataset
from mmcluspro.datasets.splits import PHASES
from mmcluspro.registry import DATASETS


@dataclass
class PhaseBatch:
    """What is kept of B images.

    Args:
        index (Tensor): Their place in the dataset, shape (B,).
        labels (dict[str, Tensor]): 'attr', 'obj' and 'pair' labels, shape (B,) each.
        features (dict[str, Tensor]): Unit-norm 'attr' and 'obj' features, shape (B, D) each;
            empty for a model without these paths.
        answer (Tensor): Best pair, a row of the dataset's ``space.pairs``, shape (B,).
    """
    index: Tensor
    labels: dict[str, Tensor]
    features: dict[str, Tensor]
    answer: Tensor


def phase_dataset(cfg: Config, phase: str) -> CZSLDataset:
    """The images of a phase as a test sees them: no augmentation, also those of training.

    Args:
        cfg (Config): Config of a checkpoint, ``load_model(…).cfg``.
        phase (str): 'train', 'val' or 'test'.

    Returns:
        CZSLDataset: Of :mod:`mmcluspro.datasets`.
    """
    if phase not in PHASES:
        raise ValueError(f"phase must be 'train', 'val' or 'test', got {phase!r}.")
    fields = {}
    for name in (phase, 'test'):
        try:
            fields[name] = cfg[f'{name}_dataloader'].dataset
        except (KeyError, AttributeError, TypeError):
            raise ValueError(f'The config of the checkpoint has no {name}_dataloader.dataset: '
                             'its images are not known.') from None
    arguments = dict(fields[phase], phase=phase, pipeline=fields['test'].pipeline, test_mode=True)
    from mmcluspro.apis.config_text import check_types
    kind = str(arguments.pop('type')).removeprefix('mmcluspro.')
    DATASETS.import_from_location()
    if kind not in DATASETS.module_dict:
        raise ValueError(f'The config of the checkpoint reads {phase} images with {kind!r}, which '
                         'is no dataset of mmcluspro. If it is yours, register it in '
                         'mmcluspro.registry.DATASETS.')
    # The config comes out of a checkpoint: a type must not be a path to import.
    check_types(arguments, 'The checkpoint')
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        return DATASETS.build(dict(arguments, type=f'mmcluspro.{kind}'))


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
        bias (float): Added to the scores of unseen pairs before the best one is taken.
            Defaults to 0.
        batch_size (int): Defaults to 64.
        progress (str): Says on stderr, after these words, how far it is. Defaults to '': nothing.

    Yields:
        PhaseBatch: On the CPU.
    """
    indices = list(range(len(dataset))) if indices is None else list(indices)
    if not indices:
        raise ValueError(f'There are no {dataset.phase} images to look at.')
    model.head.set_worlds({'closed': dataset.space})
    shift = bias * (~dataset.space.seen).float()
    loader: DataLoader = DataLoader(
        Subset(dataset, indices), batch_size, collate_fn=default_collate,
        num_workers=_workers(model, dataset.phase))
    start = 0
    for batch in _tracked(loader, progress):
        data = model.data_preprocessor(batch, False)
        feats = model.extract_feat(data['inputs'])
        labels = {name: label.cpu() for name, label in
                  model.head.labels(data['data_samples']).items()}
        scores = model.head.scores(feats, 'closed')
        answer = (scores + shift.to(scores)).argmax(dim=1)
        parts = dict(zip(('attr', 'obj'), feats[-3:-1])) if len(feats) >= 3 else {}
        yield PhaseBatch(
            torch.tensor(indices[start:start + len(answer)]), labels,
            {name: F.normalize(part.float(), dim=1).cpu() for name, part in parts.items()},
            answer.cpu())
        start += len(answer)


def chosen_bias(model: Any) -> float:
    """The closed-world bias that validation chose for a checkpoint; 0 where it chose none."""
    bias = model.meta.get('calibration', {}).get('closed', {}).get('bias')
    return 0.0 if bias is None else float(bias)


def _workers(model: Any, phase: str) -> int:
    return (model.cfg.get(f'{phase}_dataloader') or {}).get('num_workers', 0)


def _tracked(loader: DataLoader, words: str) -> Iterator[Any]:
    """Batches; a line on stderr says how far it is, and how long it still takes."""
    start = last = time.monotonic()
    live = sys.stderr.isatty()
    for done, batch in enumerate(loader, 1):
        yield batch
        now = time.monotonic()
        if words and (done == len(loader) or now - last > (0.5 if live else 10)):
            left = (now - start) / done * (len(loader) - done)
            state = f'{left:.0f} s left' if done < len(loader) else f'{now - start:.0f} s'
            print(f'{words}: {done / len(loader):.0%}, {state}  ', file=sys.stderr, flush=True,
                  end='\r' if live and done < len(loader) else '\n')
            last = now


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
        edge = min(image.size)
        left, top = (image.width - edge) // 2, (image.height - edge) // 2
        image = image.crop((left, top, left + edge, top + edge))
        if edge > side:
            image = image.resize((side, side), Image.Resampling.LANCZOS)
    return np.asarray(image)
