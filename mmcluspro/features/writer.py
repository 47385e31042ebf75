"""Writes features of a frozen backbone in shards; an interrupted run continues where it stopped.

Several processes may write into one folder: each has its own unfinished files, and the first one
decides what the JSON files say."""
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.dataset import pseudo_collate
from mmengine.logging import print_log
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from mmcluspro.errors import Fault, FileError, describe
from mmcluspro.utils.digest import checksum
from mmcluspro.utils.files import atomic_path, is_abandoned, remove
from mmcluspro.utils.progress import Progress

from .kept import KeptFeatures
from .source import build_frozen, find_frozen_part, source_facts
from .store import (
    FACTS,
    NAMES,
    SHARD,
    differences,
    find_shards,
    list_change,
    plain,
    read_facts,
    read_json,
    read_shard,
    sample_name,
    write_facts,
)

DTYPES = ('float32', 'float16')


def start_folder(root: str | Path, facts: Mapping[str, Any]) -> None:
    """Writes the facts, or compares them with those of a run that was broken off.

    Args:
        root (str | Path): Folder of the features.
        facts (dict): backbone, pool, weights, fingerprint, pipeline, preprocessor, dtype,
            shard_size.
    """
    folder = Path(root).expanduser()
    stored = _settle(folder / FACTS, plain(facts), root, folder.glob('*/*.npy'))
    changes = list(differences(stored, plain(facts), ''))
    if changes:
        raise ValueError(
            f'{root} holds features of something else: '
            f'{"; ".join(change.lstrip(".") for change in changes[:5])}. Give another --out, or '
            'delete that folder.')


class PhaseWriter:
    """The shards of one phase.

    Args:
        root (str | Path): Folder of the features, after :func:`start_folder`.
        phase (str): 'train', 'val' or 'test'.
        names (Sequence[str]): Images, in order.
    """

    def __init__(self, root: str | Path, phase: str, names: Sequence[str]) -> None:
        facts = read_facts(root)
        self.size, self.dtype = facts['shard_size'], facts['dtype']
        self.folder = Path(root).expanduser() / phase
        self.names = list(names)
        stored = _settle(self.folder / NAMES, self.names, root, self.folder.glob('*.npy'))
        change = list_change(stored, self.names)
        if change:
            raise ValueError(f'{self.folder} is of another image list: {change}. Give another '
                             '--out, or delete that folder.')

    def missing(self) -> list[range]:
        """Rows of the shards that are not there, or are damaged (these are deleted)."""
        files = find_shards(self.folder)
        rows = [range(start, min(start + self.size, len(self.names)))
                for start in range(0, len(self.names), self.size)]
        return [span for number, span in enumerate(rows)
                if number not in files or not _is_whole(files[number], len(span))]

    def write(self, span: range, features: np.ndarray) -> None:
        """Writes the shard of some rows; it gets its name when it is on the disk."""
        array = features.astype(self.dtype)
        bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
        if len(bad):
            raise ValueError(
                f'The feature of {self.names[span[bad[0]]]!r} is not finite'
                + (f' (and of {len(bad) - 1} more images)' if len(bad) > 1 else '')
                + (' in float16; use --dtype float32.' if self.dtype == 'float16' else
                   '; are the weights of the backbone damaged?'))
        number = span.start // self.size
        path = self.folder / f'{number:05d}-{checksum(array)}.npy'
        with atomic_path(path) as part, part.open('wb') as file:
            np.save(file, array)

    def tidy(self) -> None:
        """Deletes what dead processes left, and all but one of the copies of a shard.

        Processes with other batch sizes or devices round differently, which gives a shard two
        names; every process keeps the last, which is the one that is read.
        """
        shards = [path for path in sorted(self.folder.glob('*.npy')) if SHARD.fullmatch(path.name)]
        surplus = [path for path, other in pairwise(shards) if path.name[:5] == other.name[:5]]
        left = [part for folder in (self.folder, self.folder.parent)
                for part in folder.glob('*.part') if is_abandoned(part)]
        for path in surplus + left:
            remove(path.parent, path)


def _is_whole(path: Path, rows: int) -> bool:
    try:
        read_shard(path, rows)
    except FileError as error:
        print_log(f'{error.file}: {error.problem}. It is made again.', 'current')
        remove(path.parent, path)
        return False
    return True


def _settle(path: Path, content: Any, root: str | Path, shards: Iterator[Path]) -> Any:
    """Reads a JSON file; if there are no shards, a missing or damaged one is written again.

    Shards whose description is lost could be of other images or weights: that is an error.
    """
    described = next(shards, None)  # looked for first: a process that is ahead writes JSON first
    try:
        return read_json(path, type(content), root)
    except FileNotFoundError:
        if described:
            raise ValueError(
                f'{path} is missing, without which nobody knows what {described} holds. Delete the '
                f'folder {path.parent} and give the same command again.') from None
    except FileError as error:
        if described:
            raise
        print_log(f'{error.file}: {error.problem}. It is made again.', 'current')
        remove(path.parent, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_facts(path, content)
    return read_json(path, type(content), root)


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
                progress: Progress | None = None, kept: KeptFeatures | None = None,
                part: tuple[int, int] = (0, 1)) -> int:
    """Extracts the features of a phase that are not there yet.

    Args:
        dataset (CZSLDataset): Gives ``inputs`` of each image, without randomness.
        encode (Callable): List of inputs -> features (B, D).
        root (str | Path): Folder of the features, after :func:`start_folder`.
        phase (str): 'train', 'val' or 'test'.
        batch_size (int): Images that are encoded together. Defaults to 64.
        workers (int): Processes that read images. Defaults to 0.
        progress (Progress, optional): Counts the images of one or more phases. Defaults to None.
        kept (KeptFeatures, optional): Features of image files that other runs made; new ones are
            added. Defaults to None.
        part (tuple[int, int]): (i, n): only every n-th shard from the i-th on, so that n processes
            share the work. Defaults to (0, 1): all.

    Returns:
        int: Number of features that were made in this run.
    """
    infos = [dataset.get_data_info(index) for index in range(len(dataset))]
    names = list(map(sample_name, infos))
    writer = PhaseWriter(root, phase, names)
    spans = [span for span in writer.missing()
             if span.start // writer.size % part[1] == part[0]]
    keys: dict[int, bytes] = {}
    known: dict[int, np.ndarray] = {}
    if kept is not None:
        rows = [row for span in spans for row in span]
        found = kept.find(infos[row]['img_path'] for row in rows)
        keys = dict(zip(rows, found[0]))
        known = {row: value for row, value in zip(rows, found[1]) if value is not None}
    new = [[row for row in span if row not in known] for span in spans]
    total = sum(map(len, new))
    progress = progress or Progress(phase, len(names))
    progress.skip(len(names) - total)
    batches = [rows[start:start + batch_size] for rows in new
               for start in range(0, len(rows), batch_size)]
    loader = iter(DataLoader(CheckedView(dataset), batch_sampler=batches, num_workers=workers,
                             collate_fn=list))
    for span, rows in zip(spans, new):
        parts: list[np.ndarray] = []
        faults: list[Fault] = []
        for _ in range(0, len(rows), batch_size):
            batch = next(loader)
            faults += [item['fault'] for item in batch if 'fault' in item]
            if not faults:
                parts.append(encode(pseudo_collate(batch)['inputs']).cpu().numpy())
                progress.add(len(batch))
        if faults:
            raise ValueError(
                f'{len(faults)} of {len(rows)} images cannot be read:\n{describe(faults)}\n'
                'Repair them, or take them out of the data, and give the same command again; the '
                f'shards in {writer.folder} stay.')
        made = dict(zip(rows, np.concatenate(parts))) if rows else {}
        writer.write(span, np.stack([made[row] if row in made else known[row] for row in span]))
        if kept is not None and rows:
            kept.add([keys[row] for row in rows], np.stack([made[row] for row in rows]))
    writer.tidy()
    return total
