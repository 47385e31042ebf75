"""The files of stored features: their format, and reading them without trust.

::

    <root>/features.json             the facts: backbone, weights, pipeline, normalisation
    <root>/<phase>/names.json        the images, in order
    <root>/<phase>/00000-<crc>.npy   shards of (n, D), memory-mapped; the name holds their CRC-32

``mmcluspro extract-features`` writes them.
"""
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mmcluspro.errors import FileError, reason_of
from mmcluspro.utils.atomic import write_json
from mmcluspro.utils.digest import checksum
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


def read_shard(path: Path, rows: int) -> np.ndarray:
    """Maps a shard of features (rows, D) into memory after checking its checksum."""
    try:
        array = np.load(path, mmap_mode='r', allow_pickle=False)
        found = checksum(array)
        whole = (array.ndim == 2 and len(array) == rows and path.name[6:14] == found
                 and array.dtype in (np.float32, np.float16))
        reason = f'{array.dtype} of shape {array.shape} or checksum {found} is wrong'
    except Exception as error:  # damaged headers raise almost anything
        whole, reason = False, reason_of(error)
    if not whole:
        raise FileError(path, f'it is damaged ({reason})', 'Delete it; the same command makes it '
                        f'again:\n  {command(path.parents[1])}')
    return array
