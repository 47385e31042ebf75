"""Checks own data, a folder or a CSV file, before training: labels, files, pictures, split."""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

from mmcluspro.errors import Fault

from .dataset_check import Report
from .folder_tree import images_below, scan_folders
from .image_folder import ImageFolder, undecodable
from .splits import PHASES, Pair
from .table_file import TableRow, read_table

FEW_TRAINING = 5  # images of a seen pair below which it is counted
SMALL_TRAINING = 0.25  # share of all images; a split by default has 0.42
WORDS = dict(train='training', val='validation', test='test')


def too_few_names(pairs: Collection[Pair]) -> str:
    """Explains why no pair can be held out from training; '' if one can.

    Args:
        pairs (Collection[Pair]): All pairs of the data.
    """
    attrs, objs = Counter(attr for attr, _ in pairs), Counter(obj for _, obj in pairs)
    if any(attrs[attr] > 1 and objs[obj] > 1 for attr, obj in pairs):
        return ''
    return (f'{len(attrs)} attribute{"s" * (len(attrs) > 1)}, {len(objs)} object'
            f'{"s" * (len(objs) > 1)} and {len(pairs)} pair{"s" * (len(pairs) > 1)} are too few: '
            'to hold a pair out, its attribute and its object must each occur in another pair '
            '(for example wet cat, dry cat and wet dog; wet cat can be held out)')


def split_warnings(rows: Sequence[TableRow]) -> list[str]:
    """Warnings about empty and one-sided phases and pairs with few training images.

    Args:
        rows (Sequence[TableRow]): Images with ``split`` set.
    """
    images: dict[str, Counter[Pair]] = defaultdict(Counter)
    for row in rows:
        images[row.split][row.attribute, row.object] += 1
    seen, found = set(images['train']), []
    for phase in PHASES:
        pairs, name = set(images[phase]), WORDS[phase]
        if not pairs:
            found.append(f'The {name} split is empty.')
        elif phase != 'train' and not pairs & seen:
            found.append(f'The {name} split has unseen pairs only: its accuracy on seen pairs '
                         'cannot be measured.')
        elif phase != 'train' and not pairs - seen:
            found.append(f'The {name} split has seen pairs only: it cannot tell how well new pairs '
                         'are recognised.')
    training = images['train'].total()
    if 0 < training < SMALL_TRAINING * len(rows):
        found.append(f'Only {training} of {len(rows)} images ({training / len(rows):.0%}) are for '
                     'training. With --group-by, choose smaller groups: each group that has an '
                     'image of an unseen pair leaves training. Or lower --unseen-fraction.')
    few = sorted(pair for pair in seen if images['train'][pair] < FEW_TRAINING)
    if few:
        names = ', '.join(' '.join(pair) for pair in few[:3]) + (', …' if len(few) > 3 else '')
        found.append(f'{len(few)} of {len(seen)} seen pairs have fewer than {FEW_TRAINING} '
                     f'training images: {names}')
    return found


FEW = 5  # images of a pair below which it is named


def is_own_data(path: str | Path) -> bool:
    """Whether a path is a CSV file or a folder of images, not a dataset in the published layout."""
    path = Path(path).expanduser()
    if path.is_file():
        return path.suffix.lower() == '.csv'
    return path.is_dir() and not (path / 'images').is_dir() and bool(images_below(path))


def check_photos(path: str | Path, separator: str = '_', decode: bool = False) -> Report:
    """Counts own data and lists what is wrong with it.

    Args:
        path (str | Path): CSV file ``image,attribute,object`` next to the images, or folder of
            folders ``attribute_object/``.
        separator (str): As in :func:`scan_folders`. Defaults to '_'.
        decode (bool): Whether to read every image. Slow. Defaults to False.
    """
    path = Path(path).expanduser()
    root, faults = path if path.is_dir() else path.parent, []
    if path.is_dir():
        rows = scan_folders(path, separator)
    else:
        with path.open(encoding='utf-8-sig', errors='replace') as file:
            split = 'split' in file.readline().lower()
        rows = read_table(path, need_split=split)
    folder = ImageFolder(root)
    files = {row: folder.find(row.image) for row in rows}
    faults += [Fault('image', f'{path}:{row.line}', f'no image {row.image!r} in {root}')
               for row, file in files.items() if file is None]
    pairs = Counter((row.attribute, row.object) for row in rows)
    faults += [Fault('few images', str(path), f'{" ".join(pair)} has {count}; twenty are better')
               for pair, count in sorted(pairs.items()) if count < FEW]
    if few := too_few_names(pairs):
        faults.append(Fault('few pairs', str(path), few))
    found = {'images': len(rows), 'attributes': len({attr for attr, _ in pairs}),
             'objects': len({obj for _, obj in pairs}), 'pairs': len(pairs)}
    if rows[0].split:
        phases = Counter(row.split for row in rows)
        found |= {f'{phase} images': phases[phase] for phase in PHASES}
        faults += [Fault('no image', str(path), f'no row has split {phase!r}')
                   for phase in PHASES if not phases[phase]]
    if decode:
        known = {file: row for row, file in files.items() if file}
        faults += [Fault('unreadable image', file, reason)
                   for file, reason in undecodable(list(known))]
    return Report(found, {}, faults)
