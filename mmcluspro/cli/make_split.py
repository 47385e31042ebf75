"""Writes a seen/unseen split of your own images as a table: ``mmcluspro make-split``."""
import sys
from collections import Counter
from collections.abc import Sequence

from mmcluspro.datasets.folder_tree import left_out
from mmcluspro.datasets.photo_check import (
    fix_names,
    is_table,
    label_faults,
    read_photos,
    split_warnings,
)
from mmcluspro.datasets.splits import PHASES
from mmcluspro.datasets.splitting import count_groups, find_groups, make_split
from mmcluspro.datasets.table_file import Columns, write_table
from mmcluspro.errors import describe, describe_kinds, printable
from mmcluspro.flags.data_flags import parse_make_split


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line and runs it."""
    args = parse_make_split(argv)
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
