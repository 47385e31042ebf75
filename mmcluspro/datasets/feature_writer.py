"""Writes features of a frozen backbone in shards; a broken run goes on where it stopped."""
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.dataset import pseudo_collate
from mmengine.logging import print_log
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from .faults import Fault, describe
from .features import (
    FACTS,
    NAMES,
    checksum,
    differences,
    find_shards,
    list_change,
    plain,
    read_facts,
    read_shard,
    sample_name,
)

DTYPES = ('float32', 'float16')


def start_folder(root: str | Path, facts: Mapping[str, Any]) -> None:
    """Writes the facts, or compares them with those of a run that was broken off.

    Args:
        root (str | Path): Folder of the features.
        facts (dict): backbone, pool, weights, fingerprint, pipeline, preprocessor, dtype,
            shard_size.
    """
    path = Path(root).expanduser() / FACTS
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_json(path, plain(facts))
        return
    changes = list(differences(read_facts(root), plain(facts), ''))
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
        path = self.folder / NAMES
        if path.exists():
            change = list_change(json.loads(path.read_text(encoding='utf-8')), self.names)
            if change:
                raise ValueError(f'{self.folder} is of another image list: {change}. Give another '
                                 '--out, or delete that folder.')
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write_json(path, self.names)

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
        part = self.folder / f'{number:05d}.part'
        with part.open('wb') as file:
            np.save(file, array)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.folder / f'{number:05d}-{checksum(array)}.npy')


def _is_whole(path: Path, rows: int) -> bool:
    try:
        read_shard(path, rows)
    except ValueError as error:
        print_log(f'{error.args[0].split(" Delete it")[0]} It is made again.', 'current')
        path.unlink()
        return False
    return True


def _write_json(path: Path, content: Any) -> None:
    part = path.with_name(f'{path.name}.part')
    part.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding='utf-8')
    part.replace(path)


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
                say: Callable[[str], None] = print) -> int:
    """Extracts the features of a phase that are not there yet.

    Args:
        dataset (CZSLDataset): Gives ``inputs`` of each image, without randomness.
        encode (Callable): List of inputs -> features (B, D).
        root (str | Path): Folder of the features, after :func:`start_folder`.
        phase (str): 'train', 'val' or 'test'.
        batch_size (int): Images that are encoded together. Defaults to 64.
        workers (int): Processes that read images. Defaults to 0.
        say (Callable): Gets lines about the progress. Defaults to print.

    Returns:
        int: Number of features that were made in this run.
    """
    names = [sample_name(dataset.get_data_info(index)) for index in range(len(dataset))]
    writer = PhaseWriter(root, phase, names)
    spans = writer.missing()
    total = sum(map(len, spans))
    say(f'{phase}: {len(names)} images, {len(names) - total} of them done')
    batches = [list(span[start:start + batch_size]) for span in spans
               for start in range(0, len(span), batch_size)]
    loader = iter(DataLoader(CheckedView(dataset), batch_sampler=batches, num_workers=workers,
                             collate_fn=list))
    progress = _Progress(phase, total, say)
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
    return total


class _Progress:
    """A line every two seconds: how far, how fast, how long."""

    def __init__(self, phase: str, total: int, say: Callable[[str], None]) -> None:
        self.phase, self.total, self.say = phase, total, say
        self.done, self.start = 0, time.monotonic()
        self.last = self.start

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self.last > 2 or self.done == self.total:
            speed = self.done / max(now - self.start, 1e-6)
            left = (self.total - self.done) / speed
            self.say(f'{self.phase}: {self.done}/{self.total} images, {speed:.0f} a second, '
                     f'{left // 60:.0f} min {left % 60:.0f} s left')
            self.last = now
