"""Writes a seen/unseen split of your own images as a table that you can look at.

    mmcluspro make-split photos --out photos/table.csv --seed 0
    mmcluspro make-split photos --table labels.csv --out photos/table.csv

Then train with dict(type='mmcluspro.TableCZSL', data_root='photos', table='table.csv').
"""
import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mmcluspro.datasets.folder_tree import scan_folders
from mmcluspro.datasets.splits import PHASES
from mmcluspro.datasets.splitting import make_split
from mmcluspro.datasets.table_file import read_table, write_table


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line and runs it."""
    parser = argparse.ArgumentParser(
        prog='mmcluspro make-split', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('root', type=Path, help='folder of the images')
    parser.add_argument('--table', type=Path, help='CSV image,attribute,object (else: folders)')
    parser.add_argument('--separator', default='_', help='divides attribute and object')
    parser.add_argument('--out', type=Path, required=True, help='the CSV to write')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--unseen-fraction', type=float, default=0.4, help='of the pairs')
    parser.add_argument('--val-fraction', type=float, default=0.15, help='of a seen pair')
    parser.add_argument('--test-fraction', type=float, default=0.15, help='of a seen pair')
    args = parser.parse_args(argv)
    if args.out.exists():
        parser.error(f'{args.out} exists; a split is not overwritten, choose another --out')
    rows = read_table(args.table, need_split=False) if args.table else scan_folders(
        args.root, args.separator)
    rows = make_split(rows, args.seed, args.unseen_fraction, args.val_fraction,
                      args.test_fraction)
    write_table(args.out, rows)
    images = Counter(row.split for row in rows)
    seen = {(row.attribute, row.object) for row in rows if row.split == 'train'}
    for phase in PHASES:
        pairs = {(row.attribute, row.object) for row in rows if row.split == phase}
        print(f'{phase:<6}{images[phase]:>8} images, {len(pairs & seen):>5} seen and '
              f'{len(pairs - seen):>5} unseen pairs')
    print(f'written to {args.out}')
    return 0
