"""Writes features of a frozen backbone in shards; a broken run goes on where it stopped.

Several processes may write into one folder: each has its own unfinished files, and the first one
decides what the JSON files say.
"""
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import numpy as np
from mmengine.dataset import pseudo_collate
from mmengine.logging import print_log
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from .faults import Fault, describe
from .features import (
    FACTS,
    NAMES,
    SHARD,
    checksum,
    differences,
    find_shards,
    list_change,
    plain,
    read_facts,
    read_json,
    read_shard,
    sample_name,
)

DTYPES = ('float32', 'float16')
HOST = platform.node().split('.')[0]
PART = re.compile(r'.+\.([^.]*)-(\d+)-[0-9a-f]{8}\.part')
SILENT = 3600  # seconds without a write after which an unfinished file belongs to nobody


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
        with _unfinished(path) as part:
            with part.open('wb') as file:
                np.save(file, array)
                _flush(file)
            part.replace(path)

    def tidy(self) -> None:
        """Deletes what dead processes left, and all but one of the copies of a shard.

        Processes with other batch sizes or devices round differently, which gives a shard two
        names; every process keeps the last, which is the one that is read.
        """
        shards = [path for path in sorted(self.folder.glob('*.npy')) if SHARD.fullmatch(path.name)]
        surplus = [path for path, other in pairwise(shards) if path.name[:5] == other.name[:5]]
        left = [part for folder in (self.folder, self.folder.parent)
                for part in folder.glob('*.part') if _is_left(part)]
        for path in surplus + left:
            path.unlink(missing_ok=True)


def _is_whole(path: Path, rows: int) -> bool:
    try:
        read_shard(path, rows)
    except ValueError as error:
        print_log(f'{error.args[0].split(" Delete it")[0]} It is made again.', 'current')
        path.unlink(missing_ok=True)
        return False
    return True


def _settle(path: Path, content: Any, root: str | Path, shards: Iterator[Path]) -> Any:
    """What a JSON file says; without shards, a missing or damaged one is made from ``content``.

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
    except ValueError as error:
        if described:
            raise
        print_log(f'{error.args[0].split(" Delete the")[0]} It is made again.', 'current')
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_json(path, content)
    return read_json(path, type(content), root)


def _write_json(path: Path, content: Any) -> None:
    """Writes a file; one that another process made in the meantime stays."""
    with _unfinished(path) as part:
        with part.open('wb') as file:
            file.write(json.dumps(content, indent=1, ensure_ascii=False).encode())
            _flush(file)
        try:
            os.link(part, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            part.replace(path)


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """A name of this process for what shall be ``path``; no file of that name stays."""
    part = path.with_name(f'{path.name}.{HOST}-{os.getpid()}-{uuid4().hex[:8]}.part')
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _is_left(part: Path) -> bool:
    """Whether nobody writes this file: its process is dead, or it did not change for long."""
    match = PART.fullmatch(part.name)
    if match and match[1] == HOST and os.name == 'posix':  # elsewhere os.kill would kill
        try:
            os.kill(int(match[2]), 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # of another user
    with suppress(FileNotFoundError):
        return time.time() - part.stat().st_mtime > SILENT
    return False


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
    writer.tidy()
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
