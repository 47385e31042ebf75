"""Runs the frozen part of a model over the images of a phase and stores its features."""
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.dataset import pseudo_collate
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from mmcluspro.errors import Fault, describe
from mmcluspro.utils.progress import Progress

from .folder import sample_name
from .source import build_frozen, find_frozen_part, source_facts
from .writer import PhaseWriter


def frozen_encoder(
        backbone: Mapping[str, Any]) -> tuple[nn.Module, Callable[[Tensor], Tensor], dict]:
    """Builds the part of ``model.backbone`` that is frozen (see :class:`FrozenPart`).

    Args:
        backbone (dict): ``model.backbone`` of a config.

    Returns:
        tuple: The module; a function from images (B, 3, H, W) to features (B, D); and the facts
        that tell these features from others.
    """
    part = find_frozen_part(backbone)
    if part.trains:
        raise ValueError(_refusal(part.trains))
    tower, stamp, learns = build_frozen(part.backbone)
    if learns and not part.wrapped:
        raise ValueError(_refusal(f'{len(learns)} trainable parameters, first {learns[0]}'))

    def encode(images: Tensor) -> Tensor:
        feature = tower(images)
        feature = feature[-1] if isinstance(feature, (tuple, list)) else feature
        return part.pooled(feature, part.pool, type(tower).__name__).float()

    return tower, encode, dict(source_facts(part.backbone), pool=part.pool, fingerprint=stamp)


def _refusal(what: str) -> str:
    return (f'model.backbone has {what}: it trains, so its features change and cannot be stored. '
            'Freeze it (for example --cfg-options model.backbone.peft=None), or use a config with '
            'a frozen backbone.')


class CheckedView(Dataset):
    """Prepared images; one that cannot be read is reported in words instead of raising."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, index: int) -> dict:
        try:
            return {'inputs': self.dataset[index]['inputs']}
        except Exception as error:
            info = self.dataset.get_data_info(index)
            reason = (str(error).splitlines() or [''])[0] or type(error).__name__
            return {'fault': Fault('image', str(info.get('img_path', sample_name(info))),
                                   f'cannot be read ({reason[:200]})')}

    def __len__(self) -> int:
        return len(self.dataset)


def write_phase(dataset: Any, encode: Callable[[list[Tensor]], Tensor], root: str | Path,
                phase: str, batch_size: int = 64, workers: int = 0,
                progress: Progress | None = None) -> int:
    """Extracts the features of a phase that are not there yet.

    Args:
        dataset (CZSLDataset): Gives ``inputs`` of each image, without randomness.
        encode (Callable): List of inputs -> features (B, D).
        root (str | Path): Folder of the features, after :func:`start_folder`.
        phase (str): 'train', 'val' or 'test'.
        batch_size (int): Images that are encoded together. Defaults to 64.
        workers (int): Processes that read images. Defaults to 0.
        progress (Progress, optional): Counts the images of one or more phases. Defaults to None.

    Returns:
        int: Number of features that were made in this run.
    """
    names = [sample_name(dataset.get_data_info(index)) for index in range(len(dataset))]
    writer = PhaseWriter(root, phase, names)
    spans = writer.missing()
    total = sum(map(len, spans))
    progress = progress or Progress(phase, len(names))
    progress.skip(len(names) - total)
    batches = [list(span[start:start + batch_size]) for span in spans
               for start in range(0, len(span), batch_size)]
    loader = iter(DataLoader(CheckedView(dataset), batch_sampler=batches, num_workers=workers,
                             collate_fn=list))
    for span in spans:
        parts, faults = [], []
        for _ in range(0, len(span), batch_size):
            batch = next(loader)
            faults += [item['fault'] for item in batch if 'fault' in item]
            if not faults:
                parts.append(encode(pseudo_collate(batch)['inputs']).cpu().numpy())
                progress.add(len(batch))
        if faults:
            raise ValueError(
                f'{len(faults)} of {len(span)} images cannot be read:\n{describe(faults)}\n'
                'Repair them, or take them out of the data, and give the same command again; the '
                f'shards in {writer.folder} stay.')
        writer.write(span, np.concatenate(parts))
    writer.tidy()
    return total
