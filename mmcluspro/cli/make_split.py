"""Writes a seen/unseen split of your own images as a table that you can look at.

    mmcluspro make-split photos --out photos/table.csv --seed 0
    mmcluspro make-split photos --table labels.csv --out photos/table.csv
    mmcluspro make-split photos --group-by near-duplicates --out photos/table.csv

Then train with dict(type='mmcluspro.TableCZSL', data_root='photos', table='table.csv').
"""
import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mmcluspro.datasets.folder_tree import left_out, scan_folders
from mmcluspro.datasets.grouping import count_groups, find_groups
from mmcluspro.datasets.image_folder import ImageFolder
from mmcluspro.datasets.split_check import split_warnings
from mmcluspro.datasets.splits import PHASES
from mmcluspro.datasets.splitting import make_split
from mmcluspro.datasets.table_file import read_table, write_table
from mmcluspro.errors import Fault, describe


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line and runs it."""
    parser = argparse.ArgumentParser(
        prog='mmcluspro make-split', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('root', type=Path, help='folder of the images, or a CSV file '
                        'image,attribute,object beside them')
    parser.add_argument('--table', type=Path, help='CSV image,attribute,object (else: folders)')
    parser.add_argument('--separator', default='_', help='divides attribute and object')
    parser.add_argument('--out', type=Path, required=True, help='the CSV to write')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--unseen-fraction', type=float, default=0.4, help='of the pairs')
    parser.add_argument('--val-fraction', type=float, default=0.15, help='of a seen pair')
    parser.add_argument('--test-fraction', type=float, default=0.15, help='of a seen pair')
    parser.add_argument('--group-by', metavar='WHAT', help='keep images together that belong '
                        'together: a column of --table, a regular expression with brackets around '
                        "the part of the file name that names the group, such as '([^/]+)_[0-9]+', "
                        'or near-duplicates (default: each image on its own)')
    args = parser.parse_args(argv)
    if args.out.exists():
        parser.error(f'{args.out} exists; a split is not overwritten, choose another --out')
    if args.table is None and args.root.suffix.lower() == '.csv' and args.root.is_file():
        args.table, args.root = args.root, args.root.parent
    rows = read_table(args.table, need_split=False) if args.table else scan_folders(
        args.root, args.separator)
    if not args.table and (others := left_out(args.root)):
        print(others)
    folder = ImageFolder(args.root)
    missing = [Fault('image', f'{args.table}:{row.line}', f'no image {row.image!r} in {args.root}')
               for row in rows if folder.find(row.image) is None]
    if missing:
        print(f'warning: {len(missing)} of {len(rows)} images are missing:\n'
              f'{describe(missing)}{folder.remark}', file=sys.stderr)
    groups = None
    if args.group_by:
        groups = find_groups(rows, args.group_by, args.root, args.table)
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
        print(f'warning: {line}', file=sys.stderr)
    print(f'written to {args.out}')
    return 0
