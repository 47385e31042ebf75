"""Writes a seen/unseen split of your own images as a table: ``mmcluspro make-split``."""
from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mmcluspro.errors import describe, describe_kinds, printable

from .flags import add_photo_flags, make_parser

MAKE_SPLIT = """Split your own images into training, validation and test: seen and unseen pairs.

    mmcluspro make-split photos --out photos/table.csv --seed 0
    mmcluspro make-split photos --table labels.csv --out photos/table.csv
    mmcluspro make-split photos --group-by near-duplicates --out photos/table.csv

The result is a table that you can read and edit; no image is moved. Train with it:
data = dict(type='mmcluspro.TableCZSL', data_root='photos', table='table.csv') in a config."""


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro make-split``."""
    parser = make_parser('make-split', MAKE_SPLIT)
    parser.add_argument('root', type=Path, help='folder of the images, or a table '
                        'image,attribute,object (.csv, .tsv) next to them')
    parser.add_argument('--table', type=Path, help='table image,attribute,object (default: the '
                        'names of the folders)')
    add_photo_flags(parser, fix=True)
    parser.add_argument('--out', type=Path, required=True, help='CSV file to write')
    parser.add_argument('--seed', type=int, default=0, help='another seed gives another split '
                        '(default: 0)')
    parser.add_argument('--unseen-fraction', type=float, default=0.4,
                        help='fraction of the pairs that is held out from training (default: 0.4)')
    for phase, name in (('val', 'validation'), ('test', 'test')):
        parser.add_argument(f'--{phase}-fraction', type=float, default=0.15, help='fraction of '
                            f'the images of seen pairs that goes to {name} (default: 0.15)')
    parser.add_argument('--group-by', metavar='WHAT', help='keep images together that belong '
                        'together: a column of --table, a regular expression with brackets around '
                        "the part of the file name that names the group, such as '([^/]+)_[0-9]+', "
                        'or near-duplicates (default: each image on its own)')
    args = parser.parse_args(argv)
    if args.out.exists():
        parser.error(f'{args.out} exists and is not overwritten. Choose another --out.')
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line and runs it."""
    from mmcluspro.datasets.check import (
        fix_names,
        is_table,
        label_faults,
        read_photos,
        split_warnings,
    )
    from mmcluspro.datasets.folders import left_out
    from mmcluspro.datasets.layout import PHASES
    from mmcluspro.datasets.splitting import count_groups, find_groups, make_split
    from mmcluspro.datasets.table_file import Columns, write_table
    args = parse_args(argv)
    if args.table is None and is_table(args.root) and args.root.is_file():
        args.table, args.root = args.root, None
    photos = read_photos(args.table or args.root, args.separator, Columns(**args.columns),
                         args.root)
    if not args.table and (others := left_out(args.root)):
        print(printable(others))
    number = len(photos.missing)
    if number:
        print(f'warning: {number} of {number + len(photos.rows)} images are missing and skipped:\n'
              f'{describe(photos.missing)}{photos.remark}', file=sys.stderr)
    if not photos.rows:
        raise ValueError(f'{args.table}: there is none of its images in {photos.root}.')
    rows = fix_names(photos.rows) if args.fix_names else photos.rows
    for text in describe_kinds(label_faults(rows, photos.files)):
        print(f'warning: {text}', file=sys.stderr)
    groups = None
    if args.group_by:
        groups = find_groups(rows, args.group_by, photos.root, args.table)
        print(count_groups(groups))
    rows = make_split(rows, args.seed, args.unseen_fraction, args.val_fraction,
                      args.test_fraction, groups)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_table(args.out, rows)
    images = Counter(row.split for row in rows)
    seen = {(row.attribute, row.object) for row in rows if row.split == 'train'}
    for phase in PHASES:
        pairs = {(row.attribute, row.object) for row in rows if row.split == phase}
        print(f'{phase:<6}{images[phase]:>8} images, {len(pairs & seen):>5} seen and '
              f'{len(pairs - seen):>5} unseen pairs')
    for line in split_warnings(rows):
        print(f'warning: {printable(line)}', file=sys.stderr)
    print(f'written to {args.out}; its names are relative to {photos.root}')
    return 0
