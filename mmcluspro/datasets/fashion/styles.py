"""``styles.csv`` of Kaggle's "Fashion Product Images (Small)": one line per product."""
import csv
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from mmcluspro.utils.plain_files import read_text

LARGEST = 1 << 28  # bytes
COLUMNS = ('id', 'articleType', 'baseColour', 'productDisplayName')


class Product(NamedTuple):
    """One product and its photograph ``images/<id>.jpg``.

    Attributes:
        id (int): The shop's number.
        attribute (str): Colour, with underscores for spaces ("Navy_Blue").
        object (str): Article type, likewise ("Casual_Shoes").
        title (str): What the shop calls it.
    """
    id: int
    attribute: str
    object: str
    title: str = ''


def read_styles(path: str | Path) -> tuple[list[Product], dict[str, int]]:
    """Reads the products that have a colour and a type.

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
    missing = [name for name in COLUMNS if name not in header]
    if missing or header[-1] != COLUMNS[-1]:
        raise ValueError(
            f'{path} is not the styles.csv of Kaggle\'s "Fashion Product Images (Small)": its '
            f'first line must name {", ".join(COLUMNS)}, the last one at the end, got '
            f'{lines[0][:200] if lines else "nothing"!r}.')
    place = {name: header.index(name) for name in COLUMNS}
    products: dict[int, Product] = {}
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


def _product(fields: list[str], place: dict[str, int]) -> tuple[str, Product | None]:
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
    return '', Product(int(number), attribute, obj, title)
