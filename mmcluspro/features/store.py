"""Stored features: the format of their files, and reading them without trust.

A store is checked to belong to the dataset that asks for it.

::

    <root>/features.json             the facts: backbone, weights, pipeline, normalisation
    <root>/<phase>/names.json        the images, in order
    <root>/<phase>/00000-<crc>.npy   shards of (n, D), memory-mapped; the name holds their CRC-32

``mmcluspro extract-features`` writes them.
"""
from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform

from mmcluspro.errors import FileError, reason_of
from mmcluspro.registry import TRANSFORMS
from mmcluspro.utils.digest import checksum, sha256
from mmcluspro.utils.download import kept_folder
from mmcluspro.utils.files import write_json
from mmcluspro.utils.plain_files import read_json as read_plain
from mmcluspro.utils.plain_files import verified, with_checksum

FACTS, NAMES = 'features.json', 'names.json'
# What every file of facts has, and readers rely on.
FIELDS: dict[str, Any] = dict(backbone=dict, weights=dict, fingerprint=int, shard_size=int,
                              pipeline=list, preprocessor=dict)
FACTS_FIELDS = (*FIELDS, 'pool', 'dtype')
SHARD = re.compile(r'(\d{5})-([0-9a-f]{8})\.npy')


def command(root: str | Path) -> str:
    """Command that makes the features, or completes them."""
    return (f'mmcluspro extract-features CONFIG --out {root}  (CONFIG: the config that you '
            'train with)')


def plain(value: Any) -> Any:
    """A part of a config as JSON represents it: dicts, lists, text and numbers."""
    return json.loads(json.dumps(value, default=str))


def differences(stored: Any, asked: Any, where: str) -> Iterator[str]:
    """Names the fields in which two plain values differ."""
    if isinstance(stored, Mapping) and isinstance(asked, Mapping):
        for key in sorted({*stored, *asked}):
            yield from differences(stored.get(key), asked.get(key), f'{where}.{key}')
    elif (isinstance(stored, list) and isinstance(asked, list) and len(stored) == len(asked)
          and any(isinstance(item, Mapping) for item in stored)):
        for number, (first, second) in enumerate(zip(stored, asked)):
            yield from differences(first, second, f'{where}[{number}]')
    elif stored != asked:
        yield f'{where} was {stored!r} and is {asked!r}'


def read_json(path: Path, kind: Any, root: str | Path) -> Any:
    """A JSON file of the features in ``root``, whose content is of type ``kind``.

    Lists are stored as ``{"names": […]}`` with a checksum, as facts are; those of before are bare.
    """
    remedy = (f'Delete the folder {path.parent} and make its features again:\n  {command(root)}')
    content: Any = read_plain(path, (dict, list), remedy)
    if isinstance(content, dict):
        content = verified(content, path, remedy, ('names', ) if kind is list else FACTS_FIELDS)
        content = content.get('names') if kind is list else content
    if not isinstance(content, kind):
        raise FileError(path, f'it holds a {type(content).__name__}', remedy)
    if kind is list and not all(isinstance(name, str) for name in content):
        raise FileError(path, 'it holds other values than names', remedy)
    for field, types in FIELDS.items() if kind is dict else ():
        value = content.get(field)
        if not isinstance(value, types) or value is True or field == 'shard_size' and value < 1:
            raise FileError(path, f'its value is {value!r:.80}', remedy, field)
    return content


def write_facts(path: Path, content: Any) -> None:
    """Writes facts (a dict) or names (a list) with a checksum; the first process wins."""
    content = content if isinstance(content, dict) else dict(names=list(content))
    write_json(path, with_checksum(content), keep_first=True)


def read_facts(root: str | Path) -> dict[str, Any]:
    """The facts of a folder of features."""
    try:
        return read_json(Path(root).expanduser() / FACTS, dict, root)
    except FileNotFoundError:
        raise FileNotFoundError(
            f'There are no features in {root}. Make them first:\n  {command(root)}') from None


def sample_name(info: Mapping[str, Any]) -> str:
    """Identifies an image: by its name in the data, or by the checksum of drawn pixels."""
    if 'name' in info:
        return info['name']
    if 'img' in info:
        return f'{info.get("row", 0)}-{checksum(info["img"])}'
    return info['img_path']


def list_change(stored: Sequence[str], asked: Sequence[str]) -> str:
    """Describes how two image lists differ; '' if they are equal."""
    if list(stored) == list(asked):
        return ''
    text = f'{len(stored)} images were stored, the data has {len(asked)}'
    for number, (first, second) in enumerate(zip(stored, asked)):
        if first != second:
            return f'{text}; image {number} was {first!r} and is {second!r}'
    return f'{text}; the first {min(len(stored), len(asked))} agree'


def find_shards(folder: Path) -> dict[int, Path]:
    """Finished shards by number; unfinished files have other names."""
    found = ((SHARD.fullmatch(path.name), path) for path in sorted(folder.glob('*.npy')))
    return {int(match[1]): path for match, path in found if match}


def read_shard(path: Path, rows: int, checked: bool = False) -> np.ndarray:
    """Maps a shard of features (rows, D) into memory after checking its checksum.

    Args:
        path (Path): The shard.
        rows (int): How many features it must hold.
        checked (bool): The bytes were compared before (:class:`CheckedShards`): only the header
            is read. Defaults to False.
    """
    try:
        array = np.load(path, mmap_mode='r', allow_pickle=False)
        found = path.name[6:14] if checked else checksum(array)
        whole = (array.ndim == 2 and len(array) == rows and path.name[6:14] == found
                 and array.dtype in (np.float32, np.float16))
        reason = f'{array.dtype} of shape {array.shape} or checksum {found} is wrong'
    except Exception as error:  # damaged headers raise almost anything
        whole, reason = False, reason_of(error)
    if not whole:
        raise FileError(path, f'it is damaged ({reason})', 'Delete it; the same command makes it '
                        f'again:\n  {command(path.parents[1])}')
    return array


class CheckedShards:
    """Which shards of a folder were compared with their checksums, and are the same files still.

    The list is kept on this machine, beside the downloads: a store of a million images would be
    read from end to end before each training. A file that was written since, or replaced, has
    another time, number or size, and is read again.

    Args:
        folder (Path): Folder of a phase.
    """

    def __init__(self, folder: Path) -> None:
        name = sha256(str(folder.resolve()).encode(), digits=32)
        self.path = kept_folder('checked') / f'{name}.json'
        try:
            self.known: Any = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            self.known = {}
        if not isinstance(self.known, dict):
            self.known = {}
        self.found: dict[str, list[int]] = {}

    def read(self, path: Path, rows: int) -> np.ndarray:
        """As :func:`read_shard`; the bytes of a file are compared once."""
        state = path.stat()
        facts = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
        array = read_shard(path, rows, self.known.get(path.name) == facts)
        self.found[path.name] = facts
        return array

    def keep(self) -> None:
        """Remembers the files that were read; without room for it they are compared again."""
        if self.found != self.known:
            with suppress(OSError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_json(self.path, self.found)


def _as_bytes(names: Sequence[str]) -> np.ndarray:
    """Names as one array of UTF-8."""
    return np.array([name.encode() for name in names], dtype=np.bytes_)


class FeatureStore:
    """The features of one phase.

    Args:
        root (str | Path): Folder that ``mmcluspro extract-features`` wrote.
        phase (str): 'train', 'val' or 'test'.
    """

    def __init__(self, root: str | Path, phase: str) -> None:
        self.root, self.phase = str(root), phase
        self.folder = Path(root).expanduser() / phase
        self.facts = read_facts(root)
        try:
            names = read_json(self.folder / NAMES, list, root)
        except FileNotFoundError:
            raise FileNotFoundError(
                f'{root} has no features of phase {phase!r}. Make them first:\n'
                f'  {command(root)}') from None
        #: UTF-8, shape (N,). One array: as objects, ten million names fill gigabytes.
        self.names = _as_bytes(names)
        self._order: np.ndarray | None = None
        self._shards: list[np.ndarray] | None = None
        self.open()

    def open(self) -> list[np.ndarray]:
        """Maps all shards into memory, once, and checks that they are whole."""
        if self._shards is None:
            size = self.facts['shard_size']
            count = -(-len(self.names) // size)
            files = find_shards(self.folder)
            missing = [number for number in range(count) if number not in files]
            if missing:
                raise ValueError(
                    f'The features in {self.folder} are not complete: {len(missing)} of {count} '
                    f'shards are missing. The same command continues:\n  {command(self.root)}')
            checked = CheckedShards(self.folder)
            shards = [checked.read(files[number], min(size, len(self.names) - number * size))
                      for number in range(count)]
            if len({(shard.shape[1], shard.dtype) for shard in shards}) > 1:
                raise ValueError(f'The shards in {self.folder} differ in width or dtype. Delete '
                                 f'the folder and make them again:\n  {command(self.root)}')
            checked.keep()
            self._shards = shards
        return self._shards

    def __len__(self) -> int:
        return len(self.names)

    def find(self, names: Sequence[str]) -> np.ndarray:
        """Rows of images by their names, -1 for those that are not stored, shape (n,)."""
        if not len(self.names) or not len(names):
            return np.full(len(names), -1)
        if self._order is None:
            self._order = self.names.argsort(kind='stable')
        asked = _as_bytes(names)
        place = np.searchsorted(self.names, asked, sorter=self._order)
        rows = self._order[np.minimum(place, len(self.names) - 1)]
        return np.where(self.names[rows] == asked, rows, -1)

    def row(self, name: str, guess: int = -1) -> int:
        """Row of an image; ``guess`` is tried first."""
        if 0 <= guess < len(self.names) and self.names[guess] == name.encode():
            return guess
        row = int(self.find([name])[0])
        if row < 0:
            raise ValueError(f'{self.folder} has no feature of image {name!r}. Make the features '
                             f'of this image list in another folder:\n  {command(self.root)}')
        return row

    def __getitem__(self, name: str) -> np.ndarray:
        """The feature of an image by its name, shape (D,), float32."""
        return self.feature(self.row(name))

    def feature(self, row: int) -> np.ndarray:
        """The feature in a row, shape (D,), float32."""
        shard, place = divmod(row, self.facts['shard_size'])
        return self.open()[shard][place].astype(np.float32)

    def check(self, names: Sequence[str], pipeline: Sequence, subset: bool) -> None:
        """Refuses another image list or pipeline than those of the extraction.

        Args:
            names (Sequence[str]): Images of the dataset, in order.
            pipeline (Sequence): Its transforms, as the config has them.
            subset (bool): Whether ``names`` is a part of the list by intention.
        """
        if subset:
            missing = (self.find(names) < 0).nonzero()[0]
            change = f'image {names[missing[0]]!r} is not in it' if len(missing) else ''
        elif np.array_equal(self.names, _as_bytes(names)):
            change = ''
        else:
            change = list_change([name.decode() for name in self.names.tolist()], names)
        if change:
            raise ValueError(
                f'{self.folder} is of another image list: {change}. Make the features of this one '
                f'in another folder:\n  {command("NEW_FOLDER")}')
        changes = list(differences(self.facts['pipeline'], plain(pipeline), 'pipeline'))
        if pipeline and changes:
            raise ValueError(
                f'The features in {self.root} were made with another pipeline than that of '
                f'phase {self.phase!r}: {"; ".join(changes)}. Features cannot be augmented: set '
                'pipeline to the one of the extraction (the test pipeline), or make them again.')

    def __getstate__(self) -> dict:
        """Dataloader workers map the files again; pickled maps would become copies."""
        return {**self.__dict__, '_shards': None}


@TRANSFORMS.register_module()
class LoadFeature(BaseTransform):
    """Adds ``feature`` (D,) to a sample instead of loading and preparing its image.

    A dataset with ``features=root`` inserts it into its own pipeline.

    Args:
        root (str): Folder that ``mmcluspro extract-features`` wrote.
        phase (str): 'train', 'val' or 'test'.
    """

    def __init__(self, root: str, phase: str) -> None:
        self.store = FeatureStore(root, phase)

    def transform(self, results: dict) -> dict:
        store = self.store
        # A dataset has the order of the store, unless it is a part of it.
        row = store.row(sample_name(results), results.get('sample_idx', -1))
        results['feature'] = store.feature(row)
        return results


def feature_pipeline(pipeline: Sequence, root: str, phase: str) -> list:
    """Replaces the image transforms: load the feature, then pack it as the last one did."""
    last = pipeline[-1] if pipeline else None
    packs = isinstance(last, Mapping) and str(last['type']).split('.')[-1] == 'PackInputs'
    tail = [dict(last, input_key='feature')] if packs and last else []
    return [LoadFeature(root, phase), *tail]
