"""Checks a dataset on disk: counts against the published ones, and every fault at once.

Pairs are counted in the split files themselves: for C-GQA's validation the paper's table swaps
seen (1040) and unseen (1252). Image counts that the literature gives in thousands are compared as
such.
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
from .splits import (
    DEFAULT_SPLIT,
    PHASES,
    Pair,
    PairLines,
    pair_file,
    read_pair_list,
    unknown_primitives,
)


class Counts(NamedTuple):
    """Expected numbers; ``images`` of a phase below 1000 stand for thousands, None is not known.

    Attributes:
        primitives (tuple): Attributes, objects.
        train (int): Training pairs.
        val (tuple): Seen and unseen validation pairs.
        test (tuple): Seen and unseen test pairs.
        images (tuple): Images of train, val, test.
        total (int, optional): Images of the three together.
    """
    primitives: tuple[int, int] | None = None
    train: int | None = None
    val: tuple[int, int] | None = None
    test: tuple[int, int] | None = None
    images: tuple[int, int, int] | None = None
    total: int | None = None


EXPECTED = {
    'mit-states': Counts((115, 245), 1262, (300, 300), (400, 400), (30, 10, 13), 53753),
    'ut-zappos': Counts((16, 12), 83, (15, 15), (18, 18), (22998, 3, 3)),
    'c-gqa': Counts((413, 674), 5592, (1040, 1252), (888, 923), (27, 7, 5), 39298),
    'clothing16k': Counts((9, 8), 18, (10, 10), (9, 8), (7242, 5515, 3413), 16170),
    'ao-clevr': Counts((8, 3)),  # its splits differ
    'vaw-czsl': Counts(),  # no published table could be looked up
    'fashion': Counts((35, 60), 312, (300, 104), (300, 104), (5659, 4122, 4112), 13893),
}


#: SHA-256 of the sorted pairs of a published list, a line each, as far as lists are known to us.
LISTS = {
    'mit-states': dict(train='54e7688f3cec6d20'),
    'ut-zappos': dict(train='ffda9139054c9d68', val='26370ddbe6a0eb49', test='435668fa870685f1'),
    'c-gqa': dict(train='ea2d13b171a6f656', val='04d9972c3ce1fe64', test='606a6e1555f16c8f'),
}


def known_lists(name: str, lists: Mapping[str, PairLines]) -> dict[str, bool]:
    """Whether the list of a phase has the published pairs; phases that are not known are left out.

    Args:
        name (str): Name of the dataset.
        lists (Mapping): Pairs by phase.
    """
    return {phase: list_digest(lists[phase]) == digest
            for phase, digest in LISTS.get(name, {}).items()}


def list_digest(pairs: Iterable[Pair]) -> str:
    """The first 16 digits of SHA-256 over the sorted pairs."""
    lines = ''.join(f'{attr} {obj}\n' for attr, obj in sorted(pairs))
    return sha256(lines.encode(), digits=16)


def expected_table(name: str) -> dict[str, int | str]:
    """Row of the report -> expected number, or "30k" for a rounded one."""
    if name not in EXPECTED:
        return {}
    counts = EXPECTED[name]
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


#: 'generic' and 'shapes' have no published counts; there every row must have a listed pair.
DATASET_NAMES = (*EXPECTED, 'shapes', 'generic')
IMAGE_KEYS = {'ut-zappos': ('image', '_image')}
#: Names of splits other than the published one.
SPLITS = {'fashion': 'fashion-v1'}
#: Separators between the names of a pair that are not white space.
SEPARATORS = {'vaw-czsl': '+'}


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
        dataset (str): One of ``DATASET_NAMES``. Defaults to 'generic'.
        split (str, optional): Folder of the pair lists. Defaults to None, that of the dataset.
        decode (bool): Whether to read every image. Slow. Defaults to False.

    Returns:
        Report: Counts and faults.
    """
    if dataset not in DATASET_NAMES:
        raise ValueError(f'dataset must be one of {", ".join(DATASET_NAMES)}, got {dataset!r}.')
    split = split or SPLITS.get(dataset, DEFAULT_SPLIT)
    lists, faults = _lists(root, split, SEPARATORS.get(dataset))
    found, known = _count_pairs(lists), known_lists(dataset, lists)
    path = metadata_file(root, split)
    try:
        rows = read_metadata(path)
    except (ValueError, FileNotFoundError) as error:
        return Report(found, expected_table(dataset), [*faults, _fault('metadata', path, error)],
                      known)
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
    if dataset not in EXPECTED:
        faults += _stray_rows(rows, lists, path)
    faults += _label_faults(rows, lists, path)
    faults += _image_faults(rows, chosen, Path(root).expanduser() / 'images', path,
                            IMAGE_KEYS.get(dataset, ('image', )), decode)
    return Report(found, expected_table(dataset), faults, known)


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
