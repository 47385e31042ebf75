"""The published layout: where its files are, and how to write them.

::

    <root>/images/…                                   the images
    <root>/<split>/{train,val,test}_pairs.txt         "attribute object" lines
    <root>/metadata_<split>.t7                        torch.save of a list of dicts
                                                      with image, attr, obj, set
"""
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mmcluspro.errors import shown
from mmcluspro.utils.files import atomic_path, leaves, write_text

from .splits import DEFAULT_SPLIT, PHASES, pair_file

ROW_KEYS = ('image', 'attr', 'obj', 'set')


def metadata_file(root: str | Path, split: str = DEFAULT_SPLIT) -> Path:
    return Path(root).expanduser() / f'metadata_{split}.t7'


def write_layout(root: str | Path,
                 rows: Iterable[Mapping[str, Any]],
                 pairs: Mapping[str, Iterable[Sequence[str]]],
                 split: str = DEFAULT_SPLIT) -> Path:
    """Writes pair lists and metadata so that the readers of published data read them.

    The images themselves are the caller's: they belong in ``root/images``, at
    best in folders ``<attr>_<obj>/``, because ``check_dataset.py`` can then find
    a label that disagrees with the folder.

    Args:
        root (str | Path): The later ``data_root``; made when it is not there.
        rows (Iterable[dict]): ``image`` (path relative to ``root/images``),
            ``attr``, ``obj``, ``set`` ('train', 'val' or 'test'); further keys
            are kept.
        pairs (dict): For 'train', 'val' and 'test' the (attribute, object)
            names. The lists of 'val' and 'test' may repeat training pairs.
        split (str): Name of the split. Defaults to 'compositional-split-natural'.

    Returns:
        Path: The metadata file.
    """
    lists = {phase: sorted({(attr, obj) for attr, obj in pairs[phase]}) for phase in PHASES}
    for name in {name for phase in PHASES for pair in lists[phase] for name in pair}:
        if not name or name.split() != [name] or not name.isprintable():
            raise ValueError(
                f'The name {name!r} cannot be in a pair list, where a space separates attribute '
                'and object; write underscores instead of spaces and control characters.')
    metadata = [dict(row) for row in rows]
    known = {phase: set(lists[phase]) | set(lists['train']) for phase in PHASES}
    for number, row in enumerate(metadata):
        missing = [key for key in ROW_KEYS if key not in row]
        if missing or (row['attr'], row['obj']) not in known.get(row['set'], ()):
            raise ValueError(
                f'Row {number} of the metadata ({row}) '
                + (f'lacks {missing}.' if missing else f'has a pair of no {row["set"]!r} list.'))
        if not isinstance(row['image'], str) or leaves(row['image']):
            raise ValueError(f'Row {number} of the metadata: the image {shown(row["image"])} is '
                             'not a name below the folder of the images.')
    for phase in PHASES:
        path = pair_file(root, split, phase)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, ''.join(f'{attr} {obj}\n' for attr, obj in lists[phase]))
    target = metadata_file(root, split)
    with atomic_path(target) as part:
        torch.save(metadata, part)
    return target
