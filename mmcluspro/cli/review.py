"""Predictions out, corrections in: ``mmcluspro review``."""
from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mmcluspro.errors import FileError, reason_of, shown

from .flags import make_parser, parsed

if TYPE_CHECKING:
    from mmcluspro.datasets.table_file import TableRow

REVIEW_EXAMPLES = """examples:
  mmcluspro predict best.pth new_photos/ --out result.csv
  mmcluspro review out result.csv --root new_photos --out review.csv
  mmcluspro review out result.csv --root new_photos --uncertain 50 --out next.csv
      … correct the columns attribute and object; empty both to leave an image out
  mmcluspro review in review.csv --root new_photos --table work_dirs/photos/table.csv \\
      --table-root photos --out more.csv
  mmcluspro train more.csv
For Label Studio, write review.json instead of review.csv, import it there, and give its JSON export
to review in."""


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro review``."""
    parser = make_parser('review', 'Write predictions for people to correct, and read the '
                         'corrections as training data.', REVIEW_EXAMPLES)
    parser.add_argument('direction', choices=('out', 'in'), help='out: write predictions to '
                        'correct; in: read the corrections')
    parser.add_argument('file', help='out: CSV file of mmcluspro predict; in: the corrected file')
    parser.add_argument('--root', required=True, help='folder of the images that were predicted')
    parser.add_argument('--out', required=True, help='out: .csv for a spreadsheet, .json for Label '
                        'Studio; in: .csv to train with')
    parser.add_argument('--uncertain', type=int, metavar='N', help='out: only the N images '
                        'that are worth a label most, those whose two best answers are '
                        'closest (default: all, least confident first)')
    parser.add_argument('--table', help='in: table of the earlier training, whose rows are kept')
    parser.add_argument('--table-root', help='in: folder of the earlier images (default: the '
                        'folder of --table)')
    parser.add_argument('--prefix', default='/data/local-files/?d=', help='out, for Label Studio: '
                        'prefix of the image names (default: its local files)')
    args = parsed(parser, argv, ('uncertain', ))
    if args.uncertain is not None and args.direction == 'in':
        parser.error('--uncertain is for review out.')
    return args


COLUMNS = ('image', 'attribute', 'object', 'probability', 'check')
FROM_PREDICT = 'Give the CSV file that mmcluspro predict --out wrote.'
FROM_REVIEW = 'Give the file that mmcluspro review out wrote, or an export of Label Studio (JSON).'


class Reviewed(NamedTuple):
    """An image and its labels; both labels are empty if the image is to be left out."""
    image: str
    attribute: str
    object: str


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the file."""
    from mmcluspro.datasets.table_file import read_table, write_table
    from mmcluspro.utils.files import write_json, write_text
    args = parse_args(argv)
    if not Path(args.root).is_dir():
        raise FileNotFoundError(f'--root {args.root} is not a folder.')
    if args.direction == 'out':
        rows = read_predictions(args.file, args.root)
        rows = least_sure_first(rows) if args.uncertain is None else closest_first(
            rows, args.uncertain)
        if args.out.endswith('.json'):
            write_json(args.out, [task(row, args.prefix) for row in rows])
        else:
            write_text(args.out, review_csv(rows))
        order = 'least confident' if args.uncertain is None else (
            'those whose two best answers are closest')
        print(f'{len(rows)} images in {args.out}, {order} first.')
        return 0
    if not args.table:
        raise ValueError('review in needs --table, the table of the earlier training, for its '
                         'split into train, val and test.')
    reviewed = read_reviewed(args.file)
    kept = [row for row in reviewed if row.attribute]
    earlier = read_table(args.table)
    seen = {(row.attribute, row.object) for row in earlier if row.split == 'train'}
    new = {(row.attribute, row.object) for row in kept} - seen
    write_table(args.out, merged(earlier, kept, args.table_root or Path(args.table).parent,
                                 args.root, args.out))
    print(f'{len(kept)} reviewed images and the {len(earlier)} earlier ones in {args.out}; '
          f'{len(reviewed) - len(kept)} left out. Pairs that become seen: {len(new)}'
          + (' (to keep a pair unseen for the test, leave its images out)' if new else '')
          + f'. Next: mmcluspro train {args.out}')
    return 0


def read_predictions(path: str, root: str) -> list[dict[str, str]]:
    """Rows of :data:`COLUMNS` from a result of ``mmcluspro predict``, and the second probability.

    Unreadable images are left out.
    """
    from mmcluspro.utils.files import leaves, within
    from mmcluspro.utils.plain_files import read_csv
    found = []
    needed = ('image', 'attribute_1', 'object_1', 'probability_1')
    table = read_csv(path, needed, FROM_PREDICT)
    second = tuple({'probability_2'} & set(table.names))  # absent where one pair was asked for
    for line, row in table.columns(needed + second, FROM_PREDICT):
        if row['attribute_1']:
            image, attribute, obj = (row[column] for column in needed[:3])
            known = bool(image) and '\0' not in image
            name = os.path.relpath(image, root).replace(os.sep, '/') if known else ''
            if leaves(name) or not within(root, image):
                raise FileError(path, f'the image {shown(image)} is not below --root {root}',
                                FROM_PREDICT, f'line {line}')
            for column in ('probability_1', *second):
                if row[column] and not _is_share(row[column]) or not row['probability_1']:
                    raise FileError(path, f'the probability is {shown(row[column])}',
                                    FROM_PREDICT, f'line {line}')
            found.append(dict(image=name, attribute=attribute, object=obj,
                              probability=row['probability_1'],
                              second=row.get('probability_2') or '0'))
    return found


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def least_sure_first(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Sorts predictions so that the least confident ones come first."""
    return sorted(rows, key=lambda row: float(row['probability']))


def closest_first(rows: list[dict[str, str]], most: int) -> list[dict[str, str]]:
    """The predictions whose best two pairs are closest in probability, to label next.

    Args:
        rows (list[dict]): Of :func:`read_predictions`.
        most (int): How many.
    """
    return sorted(rows, key=lambda row: (float(row['probability']) - float(row['second']),
                                         row['image']))[:most]


def review_csv(rows: Sequence[dict[str, str]]) -> str:
    """A table for a spreadsheet, with an empty column to tick."""
    from mmcluspro.utils.plain_files import csv_text
    return csv_text([COLUMNS, *(
        [*(row[name] for name in COLUMNS[:3]), float(row['probability']), None] for row in rows)])


def task(row: dict[str, str], prefix: str) -> dict[str, Any]:
    """A task of Label Studio with a prediction, for two choices named attribute and object."""
    result = [{'from_name': name, 'to_name': 'image', 'type': 'choices',
               'value': {'choices': [row[name]]}} for name in ('attribute', 'object')]
    return {'data': {'image': prefix + row['image'], 'name': row['image']},
            'predictions': [{'model_version': 'mmcluspro', 'score': float(row['probability']),
                             'result': result}]}


def read_reviewed(path: str) -> list[Reviewed]:
    """Labels from a corrected CSV file, or from a JSON export of Label Studio.

    A task that nobody annotated, or that was skipped, is left out.
    """
    from mmcluspro.datasets.names import label
    from mmcluspro.utils.plain_files import read_csv, read_json
    if path.endswith('.json'):
        try:
            return [_exported(item) for item in read_json(path, list, FROM_REVIEW)]
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(path, f'it is not an export of Label Studio ({reason_of(error)})',
                            FROM_REVIEW) from None
    found = []
    for line, row in read_csv(path, COLUMNS[:3], FROM_REVIEW).columns(COLUMNS[:3], FROM_REVIEW):
        name, attribute, object_ = map(str.strip, row.values())
        item = Reviewed(name, label(attribute), label(object_))
        if bool(item.attribute) != bool(item.object):
            raise FileError(f'{path}:{line}', 'only one of attribute and object is empty',
                            'Fill both, or empty both to leave the image out.')
        found.append(item)
    return found


def _exported(item: dict[str, Any]) -> Reviewed:
    from mmcluspro.datasets.names import label
    name = _text(item['data']['name'])
    for annotation in reversed(item.get('annotations') or []):  # the newest
        if not annotation.get('was_cancelled'):
            said = {part['from_name']: _text(part['value']['choices'][0])
                    for part in annotation['result'] if part.get('type') == 'choices'}
            if {'attribute', 'object'} <= set(said):
                return Reviewed(name, label(said['attribute']), label(said['object']))
    return Reviewed(name, '', '')


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(f'{shown(value)} is not a name')
    return value.strip()


def merged(earlier: Sequence[TableRow], kept: Sequence[Reviewed], earlier_root: str | Path,
           root: str | Path, out: str | Path) -> list[TableRow]:
    """Rows to train with: the earlier ones, and the corrected images for training.

    Args:
        earlier (Sequence[TableRow]): Of the earlier training; a corrected image takes the place
            of an earlier row.
        kept (Sequence[Reviewed]): With both labels.
        earlier_root (str | Path): Folder of the earlier images.
        root (str | Path): Folder of the corrected images.
        out (str | Path): The new table; names are relative to its folder.
    """
    from mmcluspro.datasets.table_file import TableRow
    from mmcluspro.utils.files import inside, leaves
    base = Path(out).resolve().parent

    def name(folder: str | Path, image: str) -> str:
        found = os.path.relpath(inside(Path(folder).resolve(), image), base).replace(os.sep, '/')
        if leaves(found):
            raise ValueError(f'{Path(folder) / image} is not below {base}, the folder of '
                             '--out: put --out into a folder above all images.')
        return found

    # A training on all images has no split: the next one is to measure by cross-validation, too.
    all_train = all(row.split == 'train' for row in earlier)
    rows = {name(earlier_root, row.image): row._replace(split='' if all_train else row.split)
            for row in earlier}
    for item in kept:
        image = name(root, item.image)
        split = rows[image].split if image in rows else '' if all_train else 'train'
        rows[image] = TableRow(image, item.attribute, item.object, split)
    return [row._replace(image=image) for image, row in rows.items()]
