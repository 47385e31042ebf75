"""Reads own data, a folder or a table, and checks it: labels, files, pictures, split."""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mmcluspro.errors import Fault
from mmcluspro.utils.digest import file_digest

from .dataset_check import Report
from .folder_tree import images_below, scan_folders
from .image_folder import ImageFolder, undecodable
from .names import alike
from .splits import PHASES, Pair
from .splitting import near_duplicates
from .table_file import NAMED, SUFFIXES, Columns, TableRow, read_table, table_root

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
SEPARATORS = ('_', '__', '/')


class Photos(NamedTuple):
    """Own data as a user gives it.

    Attributes:
        rows (list[TableRow]): Images whose file is there.
        root (Path): Folder of the images.
        files (dict[str, str]): File of each image.
        missing (list[Fault]): Rows without a file.
        remark (str): Advice about files that were not looked for; ''.
    """
    rows: list[TableRow]
    root: Path
    files: dict[str, str]
    missing: list[Fault]
    remark: str


def is_table(path: str | Path) -> bool:
    """Whether a path has the ending of a table."""
    return Path(path).suffix.lower() in SUFFIXES


def is_own_data(path: str | Path) -> bool:
    """Whether a path is a table or a folder of images, not a dataset in the published layout."""
    path = Path(path).expanduser()
    if path.is_file():
        return is_table(path)
    return path.is_dir() and not (path / 'images').is_dir() and bool(images_below(path))


def read_photos(path: str | Path, separator: str | None = None, columns: Columns = NAMED,
                root: str | Path | None = None) -> Photos:
    """Reads a table or folders; rows without a file are no images, and their pairs none.

    Args:
        path (str | Path): Table ``image,attribute,object`` (and ``split``), or folder of folders
            ``attribute_object/``.
        separator (str, optional): As in :func:`scan_folders`. Defaults to None: the first of
            :data:`SEPARATORS` that fits all folders.
        columns (Columns): Names of the columns of the table.
        root (str | Path, optional): Folder that the names of a table are relative to. Defaults to
            None: that of the table, or the one that its absolute paths have in common.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        root, rows = path, _scan(path, separator)
    else:
        root = table_root(path, columns) if root is None else Path(root).expanduser()
        rows = read_table(path, need_split=False, columns=columns, root=root.absolute())
    folder = ImageFolder(root)
    found = {row.image: folder.find(row.image) for row in rows}
    missing = [Fault('image', f'{path}:{row.line}', f'no image {row.image!r} in {root}')
               for row in rows if found[row.image] is None]
    files = {image: file for image, file in found.items() if file is not None}
    return Photos([row for row in rows if row.image in files], root, files, missing, folder.remark)


def _scan(root: Path, separator: str | None) -> list[TableRow]:
    errors = []
    for sign in SEPARATORS if separator is None else (separator, ):
        try:
            return scan_folders(root, sign)
        except ValueError as error:
            errors.append(error)
    raise errors[0]


def spellings(rows: Sequence[TableRow]) -> dict[str, dict[str, str]]:
    """Attributes and objects that look like one name in two spellings, see :func:`alike`."""
    return {field: alike(Counter(getattr(row, field) for row in rows))
            for field in ('attribute', 'object')}


def fix_names(rows: Sequence[TableRow]) -> list[TableRow]:
    """The rows with one spelling for each name of :func:`spellings`."""
    found = spellings(rows)
    return [row._replace(**{field: names.get(getattr(row, field), getattr(row, field))
                            for field, names in found.items()}) for row in rows]


def label_faults(rows: Sequence[TableRow], files: Mapping[str, str]) -> list[Fault]:
    """Names in two spellings, and files with the same content under two labels.

    Args:
        rows (Sequence[TableRow]): Images.
        files (Mapping[str, str]): File of each.
    """
    faults = []
    for field, names in spellings(rows).items():
        images = Counter(getattr(row, field) for row in rows)
        faults += [Fault('name in two spellings', f'{field} {name!r} ({images[name]} images)',
                         f'looks like {other!r} ({images[other]} images); --fix-names of '
                         'mmcluspro train and make-split merges them')
                   for name, other in names.items()]
    sizes = defaultdict(list)
    for row in rows:
        sizes[Path(files[row.image]).stat().st_size].append(row)
    for same_size in sizes.values():
        if len({row[1:3] for row in same_size}) > 1:
            same = defaultdict(list)
            for row in same_size:
                same[file_digest(files[row.image])].append(row)
            faults += [fault for group in same.values() for fault in two_labels(
                group, 'one photograph under two labels', 'is the same file as')]
    return faults


def two_labels(rows: Sequence[TableRow], kind: str, what: str) -> list[Fault]:
    """A fault for each image of a group that has another label than the first one."""
    return [Fault(kind, row.image, f'{what} {rows[0].image}, which is labelled '
                  f'"{" ".join(rows[0][1:3])}", not "{" ".join(row[1:3])}"')
            for row in rows[1:] if row[1:3] != rows[0][1:3]]


def check_photos(path: str | Path, separator: str | None = None, decode: bool = False,
                 columns: Columns = NAMED) -> Report:
    """Counts own data and lists what is wrong with it.

    Args:
        path (str | Path): As in :func:`read_photos`.
        separator (str, optional): The same.
        decode (bool): Whether to read every image, and to look for near-duplicates. Slow. Defaults
            to False.
        columns (Columns): As in :func:`read_photos`.
    """
    photos = read_photos(path, separator, columns)
    rows, faults = photos.rows, [*photos.missing]
    pairs = Counter((row.attribute, row.object) for row in rows)
    faults += [Fault('few images', str(path), f'{" ".join(pair)} has {count}; twenty are better')
               for pair, count in sorted(pairs.items()) if count < FEW]
    if few := too_few_names(pairs):
        faults.append(Fault('few pairs', str(path), few))
    faults += label_faults(rows, photos.files)
    found = {'images': len(rows), 'attributes': len({attr for attr, _ in pairs}),
             'objects': len({obj for _, obj in pairs}), 'pairs': len(pairs)}
    if any(row.split for row in rows):
        phases = Counter(row.split for row in rows)
        found |= {f'{phase} images': phases[phase] for phase in PHASES}
        faults += [Fault('no image', str(path), f'no row has split {phase!r}')
                   for phase in PHASES if not phases[phase]]
    if decode:
        faults += [Fault('unreadable image', file, reason)
                   for file, reason in undecodable(list(photos.files.values()))]
        groups = defaultdict(list)
        near = near_duplicates([row.image for row in rows], photos.root, colour=True)
        for row in rows:
            groups[near[row.image]].append(row)
        known = {fault.where for fault in faults}
        faults += [fault for group in groups.values() for fault in two_labels(
            group, 'near-duplicates under two labels', 'looks almost the same as')
            if fault.where not in known]
    return Report(found, {}, faults, {})
