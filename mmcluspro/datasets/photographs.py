"""Real photographs in folders as their authors publish them; this package has the splits.

A split is a small list, ``lists/<split>.txt`` with a line ``phase attribute object id id …`` for
each phase and pair. ``tools/dataset_converters/prepare_photographs.py`` brings the photographs of a
list into the published layout, ``draw_photographs.py`` draws a list.
"""
from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

from mmcluspro.errors import Fault, FileError, raise_faults
from mmcluspro.registry import DATASETS
from mmcluspro.utils.digest import sha256
from mmcluspro.utils.plain_files import read_text

from .layout import PHASES, Pair
from .published import Counts, PublishedCZSL

FOLDER = Path(__file__).parent / 'lists'
GROUPS = '.groups.txt'
ID = re.compile('[0-9a-z]{1,12}')
LARGEST = 1 << 28  # bytes of a table or list
STYLES = ('id', 'articleType', 'baseColour', 'productDisplayName')


class Photograph(NamedTuple):
    """One photograph of a source.

    Attributes:
        id (str): Its name in the lists.
        attribute (str): With underscores for spaces ("Navy_Blue").
        object (str): Likewise ("Casual_Shoes").
        image (str): Path below the folder of the source.
        title (str): What its authors call it, if anything.
        group (str): Same for photographs that by their names show the same thing, if any do.
    """
    id: str
    attribute: str
    object: str
    image: str = ''
    title: str = ''
    group: str = ''

    @property
    def pair(self) -> Pair:
        return self.attribute, self.object

    @property
    def order(self) -> tuple[int, str]:
        """Sorts numbers by their value."""
        return len(self.id), self.id


class Version(NamedTuple):
    """A split of photographs. Published ones never change.

    Attributes:
        phases (dict[str, list[Photograph]]): Those of 'train', 'val' and 'test', without images.
        groups (list[list[str]]): Ids of photographs that show the same thing. In Fashion the first
            one was kept, and the others belong to no phase; elsewhere they are in one phase.
    """
    phases: dict[str, list[Photograph]]
    groups: list[list[str]]

    def pairs(self) -> dict[str, list[Pair]]:
        """The pair lists of the published layout."""
        return {phase: sorted({photo.pair for photo in photos})
                for phase, photos in self.phases.items()}


class PhotographSet(PublishedCZSL):
    """Base class of :class:`Fashion`, :class:`PlantVillage` and :class:`Grocery`.

    Args:
        data_root (str): Folder that ``prepare_photographs.py`` wrote.
        phase (str): 'train', 'val' or 'test'. Defaults to 'train'.
        split (str, optional): Name of a list of the package. Defaults to None, that of the class.
        **kwargs: As in :class:`~mmcluspro.datasets.PublishedCZSL`.
    """

    #: A file or folder by which the folder of the source is recognised.
    MARK: ClassVar[str] = ''
    #: Where the photographs can be had, for messages.
    SOURCE: ClassVar[str] = ''

    @classmethod
    def read_source(cls, folder: Path) -> tuple[list[Photograph], dict[str, int]]:
        """The photographs of a source with their labels, and how many were left out by reason."""
        raise NotImplementedError(f'{cls.__name__} must define read_source.')

    @classmethod
    def find_source(cls, folder: Path) -> Path:
        """The folder of the source: ``folder`` or one of its folders."""
        for place in (folder, *sorted(path for path in folder.glob('*') if path.is_dir())):
            if (place / cls.MARK).exists():
                return place
        raise FileNotFoundError(f'{folder} has no {cls.MARK}. Get {cls.SOURCE}, unpack it and set '
                                '--source.')


@DATASETS.register_module()
class Fashion(PhotographSet):
    """Colours (attributes) of article types (objects), photographed by a fashion shop.

    The photographs are those of Kaggle's "Fashion Product Images (Small)" (60 × 80 px). Rows of the
    metadata also have a ``title``. See docs/fashion.md. The split ``fashion-v1`` is from a random
    part of the shop's table, ``fashion-v2`` from all of it. Arguments as in
    :class:`PhotographSet`.
    """

    ROOT = 'data/fashion'
    SPLIT = 'fashion-v1'
    COUNTS = {
        'fashion-v1': Counts((35, 60), 312, (300, 104), (300, 104), (5659, 4122, 4112), 13893),
        'fashion-v2': Counts((43, 97), 496, (482, 165), (482, 165), (8925, 6721, 6713), 22359)}
    MARK = 'styles.csv'
    SOURCE = 'kaggle.com/datasets/paramaggarwal/fashion-product-images-small'

    @classmethod
    def read_source(cls, folder: Path) -> tuple[list[Photograph], dict[str, int]]:
        return read_styles(folder / cls.MARK)


@DATASETS.register_module()
class PlantVillage(PhotographSet):
    """States (attributes) of leaves of crops (objects), from the PlantVillage project.

    States that two crops or more have: healthy, black rot, powdery mildew, bacterial spot, early
    and late blight; rusts, leaf blights and leaf spots are one state each, whatever the fungus.
    Leaves lie on a plain background, which tells more than it should: see docs/real_datasets.md.
    Arguments as in :class:`PhotographSet`.
    """

    ROOT = 'data/plantvillage'
    SPLIT = 'plantvillage-v1'
    COUNTS = {'plantvillage-v1': Counts((9, 13), 17, (17, 6), (17, 6), (1189, 856, 855), 2900)}
    MARK = 'Apple___healthy'
    SOURCE = 'github.com/gabrieldgf4/PlantVillage-Dataset'
    STATES: ClassVar[dict[str, str]] = {
        'healthy': 'healthy', 'Black_rot': 'black_rot', 'Powdery_mildew': 'powdery_mildew',
        'Bacterial_spot': 'bacterial_spot', 'Early_blight': 'early_blight',
        'Late_blight': 'late_blight', 'Cedar_apple_rust': 'rust', 'Common_rust_': 'rust',
        'Northern_Leaf_Blight': 'leaf_blight', 'Leaf_blight_(Isariopsis_Leaf_Spot)': 'leaf_blight',
        'Cercospora_leaf_spot Gray_leaf_spot': 'leaf_spot', 'Septoria_leaf_spot': 'leaf_spot'}
    CROPS: ClassVar[dict[str, str]] = {
        'Cherry_(including_sour)': 'cherry', 'Corn_(maize)': 'corn', 'Pepper,_bell': 'bell_pepper'}

    @classmethod
    def read_source(cls, folder: Path) -> tuple[list[Photograph], dict[str, int]]:
        photos, left_out = [], Counter[str]()
        for place in sorted(path for path in folder.glob('*___*') if path.is_dir()):
            crop, _, state = place.name.partition('___')
            names = sorted(path.name for path in place.iterdir())
            if state not in cls.STATES:
                left_out[f'{state}: a state of one crop'] += len(names)
                continue
            photos += [_by_path(f'{place.name}/{name}', cls.STATES[state],
                                cls.CROPS.get(crop, crop.lower())
                                )._replace(group=f'{place.name}/{cls.leaf(name)}')
                       for name in names]
        return photos, dict(left_out)

    @staticmethod
    def leaf(name: str) -> str:
        """The part of a file name that is the same for all photographs of a leaf.

        Examples:
            >>> PlantVillage.leaf('000146ff-92a4___GH_HL Leaf 259.1.JPG')
            'GH_HL Leaf 259'
            >>> PlantVillage.leaf('00031d74-076e___R.S_HL 8315 copy 2.jpg')
            'R.S_HL 8315'
        """
        stem = name.rpartition('___')[2].rpartition('.')[0]
        return re.sub(r'(\.\d+)?( Day .*| copy.*)?$', '', stem, count=1)


@DATASETS.register_module()
class Grocery(PhotographSet):
    """Brands (attributes) of packaged products (objects) in the shelves of Swedish shops.

    The packages of the Grocery Store Dataset (Klasson et al., 2019). Most products are sold by one
    brand: few pairs can be unseen. Arguments as in :class:`PhotographSet`.
    """

    ROOT = 'data/grocery'
    SPLIT = 'grocery-v1'
    COUNTS = {'grocery-v1': Counts((9, 26), 26, (26, 2), (26, 3), (1014, 341, 390), 1745)}
    MARK = 'classes.csv'
    SOURCE = 'github.com/marcusklasson/GroceryStoreDataset'
    COLUMNS = ('Class Name (str)', 'Class ID (int)', 'Iconic Image Path (str)')

    @classmethod
    def read_source(cls, folder: Path) -> tuple[list[Photograph], dict[str, int]]:
        table = folder / cls.MARK
        rows = list(csv.reader(read_text(table, 'Download it again.', LARGEST).splitlines()))
        if not rows or any(name not in rows[0] for name in cls.COLUMNS):
            raise FileError(table, f'its first line must name {", ".join(cls.COLUMNS)}',
                            'Download it again.')
        name, number, icon = (rows[0].index(column) for column in cls.COLUMNS)
        packaged = {row[number]: cls.split_name(row[name]) for row in rows[1:]
                    if '/Packages/' in row[icon]}
        photos, left_out = [], Counter[str]()
        for phase in PHASES:
            for line in read_text(folder / f'{phase}.txt', 'Download it again.', LARGEST
                                  ).splitlines():
                image, _, labels = line.partition(',')
                pair = packaged.get(labels.partition(',')[0].strip())
                if pair is None:
                    left_out['fruit or vegetable'] += 1
                else:
                    photos.append(_by_path(image.strip(), *pair))
        return photos, dict(left_out)

    @staticmethod
    def split_name(name: str) -> Pair:
        """Brand and product of a class.

        Examples:
            >>> Grocery.split_name('God-Morgon-Apple-Juice')
            ('god_morgon', 'apple_juice')
        """
        words = name.lower().split('-')
        brand = 2 if words[:2] == ['god', 'morgon'] else 1
        return '_'.join(words[:brand]), '_'.join(words[brand:])


def _by_path(image: str, attribute: str, obj: str) -> Photograph:
    """A photograph whose id is the beginning of the SHA-256 of its path."""
    return Photograph(sha256(image.encode(), digits=10), attribute, obj, image)


def read_styles(path: str | Path) -> tuple[list[Photograph], dict[str, int]]:
    """Reads the products of Kaggle's ``styles.csv`` that have a colour and a type.

    Titles may hold commas that are not escaped, as in Kaggle's own file: the title is the last
    column, and takes all fields from there on. Each line is read alone, so that a stray quote
    spoils at most its own line.

    Args:
        path (str | Path): The file.

    Returns:
        tuple: The products in the order of the file, and the number of lines left out by reason.
    """
    path = Path(path).expanduser()
    lines = read_text(path, 'Download it again.', LARGEST).splitlines()
    header = _fields(lines[0]) if lines else []
    missing = [name for name in STYLES if name not in header]
    if missing or header[-1] != STYLES[-1]:
        raise ValueError(
            f'{path} is not the styles.csv of Kaggle\'s "Fashion Product Images (Small)": its '
            f'first line must name {", ".join(STYLES)}, the last one at the end, got '
            f'{lines[0][:200] if lines else "nothing"!r}.')
    place = {name: header.index(name) for name in STYLES}
    products: dict[str, Photograph] = {}
    left_out = Counter[str]()
    for line in lines[1:]:
        fields = _fields(line)
        if not any(fields):
            continue
        reason, product = _product(fields, place)
        if product is None:
            left_out[reason] += 1
        elif product.id in products:
            left_out['id a second time'] += 1
        else:
            products[product.id] = product
    return list(products.values()), dict(left_out)


def _fields(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _product(fields: list[str], place: dict[str, int]) -> tuple[str, Photograph | None]:
    """The product of a line, or why there is none."""
    if len(fields) <= place['productDisplayName']:
        return 'too few fields', None
    number, colour = fields[place['id']].strip(), fields[place['baseColour']]
    if not (number.isascii() and number.isdigit() and len(number) <= 9):
        return 'no number as id', None
    attribute, obj = ('_'.join(re.split(r'[\s/\\]+', name.strip()))
                      for name in (colour, fields[place['articleType']]))
    if 'NA' in (attribute, obj) or not attribute or not obj:
        return 'no colour or type', None
    title = ' '.join(','.join(fields[place['productDisplayName']:]).split())
    number = str(int(number))
    return '', Photograph(number, attribute, obj, f'images/{number}.jpg', title)


def version_file(name: str) -> Path:
    """The list of a split of the package, or the file that ``name`` is a path of."""
    for path in (FOLDER / f'{name}.txt', Path(name).expanduser()):
        if path.is_file():
            return path
    known = sorted(path.stem for path in FOLDER.glob('*.txt') if not path.name.endswith(GROUPS))
    raise FileNotFoundError(f'{name!r} is neither a split of the package ({", ".join(known)}) nor '
                            'a file.')


def read_version(name: str) -> Version:
    """Reads a split by its name, or a file that ``draw_photographs.py`` wrote.

    A second file with the ending ``.groups.txt`` lists groups of ids, if there are any.
    """
    path = version_file(name)
    phases: dict[str, list[Photograph]] = {phase: [] for phase in PHASES}
    faults, first = [], dict[str, int]()
    for number, words in _lines(path):
        ids = [word for word in words[3:] if ID.fullmatch(word)]
        twice = [i for i in ids if first.setdefault(i, number) != number]
        folders = '/' not in ''.join(words[1:3])  # names become names of folders
        if words[0] not in PHASES or not ids or len(ids) < len(words) - 3 or not folders:
            faults.append(Fault('version', f'{path}:{number}',
                                'expected "phase attribute object id id …"'))
        elif twice:
            faults.append(Fault('version', f'{path}:{number}',
                                f'{twice[0]} is already in line {first[twice[0]]}'))
        else:
            phases[words[0]] += [Photograph(i, words[1], words[2]) for i in ids]
    raise_faults(faults)
    groups = path.with_name(path.stem + GROUPS)
    lines = _lines(groups) if groups.is_file() else []
    raise_faults([Fault('version', f'{groups}:{number}', 'expected ids')
                  for number, words in lines if not all(map(ID.fullmatch, words))])
    return Version(phases, [words for _, words in lines])


def write_version(path: str | Path, phases: Mapping[str, Iterable[Photograph]], header: str,
                  groups: Iterable[Iterable[str]] = (), about: str = '') -> None:
    """Writes the file or files that :func:`read_version` reads.

    Args:
        path (str | Path): File to write.
        phases (Mapping): Photographs by phase.
        header (str): Comment of the list.
        groups (Iterable): Groups of ids. Defaults to ().
        about (str): Comment of the groups. Defaults to ''.
    """
    path = Path(path).expanduser()
    lines = [f'# {line}' for line in header.splitlines()]
    for phase in PHASES:
        members: dict[Pair, list[Photograph]] = defaultdict(list)
        for photo in phases[phase]:
            members[photo.pair].append(photo)
        lines += [f'{phase} {" ".join(pair)} {" ".join(_sorted_ids(members[pair]))}'
                  for pair in sorted(members)]
    path.write_text('\n'.join(lines) + '\n', encoding='utf-8')
    named = [' '.join(group) for group in groups]
    if named:
        path.with_name(path.stem + GROUPS).write_text(
            '\n'.join([f'# {about}', *named]) + '\n', encoding='utf-8')


def _sorted_ids(photos: Iterable[Photograph]) -> list[str]:
    return [photo.id for photo in sorted(photos, key=lambda photo: photo.order)]


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Words of the lines with their number (from 1), without comments and empty ones."""
    text = read_text(path, 'Give a file that draw_photographs.py wrote.', LARGEST)
    lines = enumerate(text.splitlines(), start=1)
    return [(number, line.split()) for number, line in lines
            if line.strip() and not line.startswith('#')]
