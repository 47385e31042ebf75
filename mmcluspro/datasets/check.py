"""Checks data: a published dataset against its published counts, own data for what is likely wrong.

Pairs are counted in the split files themselves. Image counts that the literature gives in thousands
are compared as such.
"""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mmcluspro.errors import Fault, describe_kinds
from mmcluspro.utils.digest import file_digest, sha256

from .folders import ImageFolder, images_below, scan_folders, undecodable
from .layout import (
    PHASES,
    Pair,
    PairLines,
    Row,
    metadata_file,
    pair_file,
    read_metadata,
    read_pair_list,
    row_faults,
    select_rows,
    unknown_primitives,
)
from .names import alike, label
from .published import Counts, PublishedCZSL, published_datasets
from .splitting import near_duplicates
from .table_file import NAMED, SUFFIXES, Columns, TableRow, read_table, table_root


def list_digest(pairs: Iterable[Pair]) -> str:
    """The first 16 digits of SHA-256 over the sorted pairs."""
    lines = ''.join(f'{attr} {obj}\n' for attr, obj in sorted(pairs))
    return sha256(lines.encode(), digits=16)


def expected_table(counts: Counts) -> dict[str, int | str]:
    """Row of the report -> expected number, or "30k" for a rounded one."""
    table: dict[str, int | str] = {}
    if counts.primitives is not None:
        table.update(zip(('attributes', 'objects'), counts.primitives))
    if counts.train is not None:
        table['train pairs'] = counts.train
    for phase, pairs in dict(val=counts.val, test=counts.test).items():
        if pairs is not None:
            table.update(zip((f'{phase} pairs, seen', f'{phase} pairs, unseen'), pairs))
    for phase, number in zip(('train', 'val', 'test'), counts.images or ()):
        table[f'{phase} images'] = f'{number}k' if number < 1000 else number
    if counts.total is not None:
        table['images in all'] = counts.total
    return table


def agrees(found: int, expected: int | str | None) -> bool:
    """Whether a count is the expected one, to the thousand where that is all we know."""
    if isinstance(expected, str):
        return f'{(found + 500) // 1000}k' == expected
    return expected is None or found == expected


def find_dataset(name: str) -> type[PublishedCZSL] | None:
    """The dataset of a name, with or without dashes; None for 'generic' and 'shapes'.

    Examples:
        >>> find_dataset('ut-zappos').__name__, find_dataset('generic')
        ('UTZappos', None)
    """
    known = published_datasets()
    plain = name.lower().replace('-', '')
    if plain not in (*known, 'generic', 'shapes'):
        raise ValueError(f'dataset must be one of {", ".join([*known, "shapes", "generic"])}, '
                         f'got {name!r}.')
    return known.get(plain)


class Report(NamedTuple):
    """Result of :func:`check_dataset`.

    Attributes:
        found (dict[str, int]): Counts by name.
        expected (dict[str, int | str]): Published counts, where there are any.
        faults (list[Fault]): Everything that is wrong in the files.
        lists (dict[str, bool]): Whether the pair list of a phase is the published one, where we
            know that. Another list with the right counts is no fault.
    """
    found: dict[str, int]
    expected: dict[str, int | str]
    faults: list[Fault]
    lists: dict[str, bool]

    @property
    def different(self) -> list[str]:
        """Names of the counts that are not as published."""
        return [name for name, number in self.found.items()
                if not agrees(number, self.expected.get(name))]

    @property
    def ok(self) -> bool:
        return not self.faults and not self.different

    def __str__(self) -> str:
        return self.text()

    def text(self, limit: int = 10) -> str:
        """A table of the counts, then the first ``limit`` faults of each kind."""
        compared = bool(self.expected)
        lines = [f'{"":<28}{"found":>8}{"expected":>10}'] if compared else []
        for name, number in self.found.items():
            expected = str(self.expected.get(name, '-')) if compared else ''
            mark = '  <- differs' if name in self.different else ''
            lines.append(f'{name:<28}{number:>8}{expected:>10}{mark}'.rstrip())
        if self.lists:
            other = [phase for phase, same in self.lists.items() if not same]
            lines.append(f'pair lists ({", ".join(self.lists)}): ' + (
                f'{" and ".join(other)} not the published one' if other else 'as published'))
        lines += describe_kinds(self.faults, limit)
        summary = f'{len(self.faults)} problem' + 's' * (len(self.faults) != 1) + (
            f', {len(self.different)} counts differ' if compared else '')
        return '\n'.join([*lines, 'no problem found' if self.ok else summary])


def check_dataset(root: str | Path, dataset: str = 'generic', split: str | None = None,
                  decode: bool = False) -> Report:
    """Checks pair lists, metadata and images of a dataset in the published layout.

    A label that was swapped is found where images lie in folders
    ``<attr>_<obj>/`` (MIT-States, UT-Zappos, exported Shapes): the folder names
    another pair than the row. C-GQA's flat folder gives no such check.

    Args:
        root (str | Path): Folder of the dataset.
        dataset (str): Name of a dataset such as 'utzappos', whose published counts are expected.
            Defaults to 'generic': none are, and every row must have a listed pair.
        split (str, optional): Folder of the pair lists. Defaults to None, that of the dataset.
        decode (bool): Whether to read every image. Slow. Defaults to False.

    Returns:
        Report: Counts and faults.
    """
    kind = find_dataset(dataset) or PublishedCZSL
    split = split or kind.SPLIT
    counts = kind.COUNTS.get(split, kind.COUNTS.get(''))
    expected = expected_table(counts or Counts())
    lists, faults = _lists(root, split, kind.SEPARATOR)
    found = _count_pairs(lists)
    known = {phase: list_digest(lists[phase]) == digest for phase, digest in kind.LISTS.items()}
    path = metadata_file(root, split)
    try:
        rows = read_metadata(path)
    except (ValueError, FileNotFoundError) as error:
        return Report(found, expected, [*faults, _fault('metadata', path, error)], known)
    wrong = row_faults(rows, path)
    faults += wrong
    # A broken row is reported once and then counts as one that the readers leave out.
    left_out = {'image': '', 'attr': 'NA', 'obj': 'NA', 'set': 'NA'}
    rows = [row if not row_faults([row], path) else left_out for row in rows] if wrong else rows
    chosen = []
    for phase in PHASES:
        selection = select_rows(rows, lists, phase, path)
        found[f'{phase} images'] = len(selection.numbers)
        faults += selection.faults
        chosen += selection.numbers
        if not selection.numbers:
            faults.append(Fault('no image', str(path), f'no row can be used for {phase}'))
    found['images in all'] = len(chosen)
    found['rows left out'] = len(rows) - len(chosen)
    if counts is None:
        faults += _stray_rows(rows, lists, path)
    faults += _label_faults(rows, lists, path)
    faults += _image_faults(rows, chosen, Path(root).expanduser() / 'images', path,
                            kind.IMAGE_KEYS, decode)
    return Report(found, expected, faults, known)


def _fault(kind: str, where: object, error: Exception) -> Fault:
    return Fault(kind, str(where), str(error))


def _lists(root: str | Path, split: str,
           separator: str | None) -> tuple[dict[str, PairLines], list[Fault]]:
    files = {phase: pair_file(root, split, phase) for phase in PHASES}
    lists: dict[str, PairLines] = {}
    faults: list[Fault] = []
    for phase, path in files.items():
        try:
            lists[phase], found = read_pair_list(path, separator)
        except FileNotFoundError as error:
            lists[phase], found = {}, [_fault('missing file', path, error)]
        faults += found
    return lists, faults + unknown_primitives(lists, files)


def _count_pairs(lists: Mapping[str, PairLines]) -> dict[str, int]:
    every = set().union(*lists.values())
    found = {'attributes': len({attr for attr, _ in every}),
             'objects': len({obj for _, obj in every}), 'train pairs': len(lists['train'])}
    for phase in PHASES[1:]:
        seen = sum(pair in lists['train'] for pair in lists[phase])
        found[f'{phase} pairs, seen'] = seen
        found[f'{phase} pairs, unseen'] = len(lists[phase]) - seen
    return found


def _stray_rows(rows: Sequence[Row], lists: Mapping[str, PairLines], path: Path) -> list[Fault]:
    """Rows that the readers would skip, and images that occur twice."""
    union = set().union(*lists.values())
    faults, first = [], dict[str, int]()
    for number, row in enumerate(rows):
        where = f'{path} row {number}'
        if row['set'] not in (*PHASES, 'NA'):
            faults.append(Fault('set', where, f'set is {row["set"]!r}, not train, val or test'))
        elif 'NA' not in (row['attr'], row['obj']) and (row['attr'], row['obj']) not in union:
            faults.append(Fault('unknown pair', where,
                                f'({row["attr"]} {row["obj"]}) is in no pair list'))
        if row['image'] and first.setdefault(row['image'], number) != number:
            faults.append(Fault('image twice', where,
                                f'{row["image"]!r} is already in row {first[row["image"]]}'))
    return faults


def _label_faults(rows: Sequence[Row], lists: Mapping[str, PairLines],
                  path: Path) -> list[Fault]:
    """Rows whose image lies in the folder of another known pair."""
    owners: dict[str, set[Pair]] = defaultdict(set)
    for pair in set().union(*lists.values()):
        owners['_'.join(pair)].add(pair)
    faults = []
    for number, row in enumerate(rows):
        folder = label(row['image'].rpartition('/')[0].rpartition('/')[2].replace(' ', '_'))
        pair = (row['attr'], row['obj'])
        if folder in owners and pair not in owners[folder] and 'NA' not in pair:
            faults.append(Fault('label', f'{path} row {number}',
                                f'labelled ({" ".join(pair)}), but the image is '
                                f'{row["image"]!r}'))
    return faults


def _image_faults(rows: Sequence[Row], chosen: Sequence[int], root: Path, path: Path,
                  keys: Sequence[str], decode: bool) -> list[Fault]:
    if not root.is_dir():
        return [Fault('missing file', str(root), 'there is no folder images/')]
    folder = ImageFolder(root, root.parent)
    paths = {i: folder.find(*(rows[i][key] for key in keys if key in rows[i])) for i in chosen}
    faults = [Fault('image', f'{path} row {i}', f'no image {rows[i]["image"]!r} in {root}')
              for i, image in paths.items() if image is None]
    if decode:
        number = {image: i for i, image in paths.items() if image}
        faults += [Fault('unreadable image', f'{path} row {number[image]}', f'{image}: {reason}')
                   for image, reason in undecodable(list(number))]
    return faults


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
