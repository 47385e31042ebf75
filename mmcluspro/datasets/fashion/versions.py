"""Versions of the data set: which photographs, in which phase. Small text files of the package."""
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from mmcluspro.datasets.splits import PHASES, Pair
from mmcluspro.errors import Fault, raise_faults
from mmcluspro.utils.plain_files import read_text

from .styles import LARGEST, Product

FOLDER = Path(__file__).parent
VERSION = 'fashion-v1'
DROPPED = '.dropped.txt'
ID = re.compile('[0-9]{1,9}')


class Version(NamedTuple):
    """Definition of a version. Published versions never change.

    Attributes:
        phases (dict[str, list[Product]]): Products of 'train', 'val' and 'test', without titles.
        dropped (list[list[int]]): Groups of ids that show the same product: the first one was
            kept, the others belong to no phase.
    """
    phases: dict[str, list[Product]]
    dropped: list[list[int]]

    def pairs(self) -> dict[str, list[Pair]]:
        """The pair lists of the published layout."""
        return {phase: sorted({(product.attribute, product.object) for product in products})
                for phase, products in self.phases.items()}


def version_file(name: str) -> Path:
    """The file of a published version, or the file that ``name`` is a path of."""
    for path in (FOLDER / f'{name}.txt', Path(name).expanduser()):
        if path.is_file():
            return path
    known = sorted(path.stem for path in FOLDER.glob('fashion-*.txt')
                   if not path.name.endswith(DROPPED))
    raise FileNotFoundError(
        f'{name!r} is neither a version of the data set ({", ".join(known)}) nor a file.')


def read_version(name: str = VERSION) -> Version:
    """Reads a version by its name, or a file that ``draw_fashion.py`` wrote.

    The file has one line per phase and pair, ``phase attribute object id id …``. A second one
    with the ending ``.dropped.txt`` lists groups of near-duplicates, if there are any.
    """
    path = version_file(name)
    phases: dict[str, list[Product]] = {phase: [] for phase in PHASES}
    faults, first = [], dict[int, int]()
    for number, words in _lines(path):
        ids = [int(word) for word in words[3:] if ID.fullmatch(word)]
        twice = [i for i in ids if first.setdefault(i, number) != number]
        folders = '/' not in ''.join(words[1:3])  # names become names of folders
        if words[0] not in PHASES or not ids or len(ids) < len(words) - 3 or not folders:
            faults.append(Fault('version', f'{path}:{number}',
                                'expected "phase attribute object id id …"'))
        elif twice:
            faults.append(Fault('version', f'{path}:{number}',
                                f'{twice[0]} is already in line {first[twice[0]]}'))
        else:
            phases[words[0]] += [Product(i, words[1], words[2]) for i in ids]
    raise_faults(faults)
    groups = path.with_name(path.stem + DROPPED)
    lines = _lines(groups) if groups.is_file() else []
    raise_faults([Fault('version', f'{groups}:{number}', 'expected ids, numbers')
                  for number, words in lines if not all(map(ID.fullmatch, words))])
    dropped = [[int(word) for word in words] for _, words in lines]
    return Version(phases, dropped)


def write_version(path: str | Path, phases: Mapping[str, Iterable[Product]], header: str,
                  dropped: Iterable[Iterable[int]] = ()) -> None:
    """Writes the file or files that :func:`read_version` reads."""
    path = Path(path).expanduser()
    lines = [f'# {line}' for line in header.splitlines()]
    for phase in PHASES:
        ids: dict[Pair, list[int]] = defaultdict(list)
        for product in phases[phase]:
            ids[product.attribute, product.object].append(product.id)
        lines += [f'{phase} {attr} {obj} {" ".join(map(str, sorted(ids[attr, obj])))}'
                  for attr, obj in sorted(ids)]
    path.write_text('\n'.join(lines) + '\n', encoding='utf-8')
    groups = [' '.join(map(str, group)) for group in dropped]
    if groups:
        text = '# Near-duplicates: the first id of a line was kept, the others were dropped.\n'
        path.with_name(path.stem + DROPPED).write_text(
            text + '\n'.join(groups) + '\n', encoding='utf-8')


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Words of the lines with their number (from 1), without comments and empty ones."""
    text = read_text(path, 'Give a file that draw_fashion.py wrote.', LARGEST)
    lines = enumerate(text.splitlines(), start=1)
    return [(number, line.split()) for number, line in lines
            if line.strip() and not line.startswith('#')]
