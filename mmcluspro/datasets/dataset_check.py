"""Checks a dataset on disk: counts against the published ones, and every fault at once.

Pairs are counted in the split files themselves. Image counts that the literature gives in thousands
are compared as such.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mmcluspro.errors import Fault, describe_kinds
from mmcluspro.utils.digest import sha256

from .image_folder import ImageFolder, undecodable
from .layout import metadata_file
from .metadata import Row, read_metadata, row_faults, select_rows
from .names import label
from .published import Counts, PublishedCZSL, published_datasets
from .splits import PHASES, Pair, PairLines, pair_file, read_pair_list, unknown_primitives


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
