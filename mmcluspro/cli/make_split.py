"""Writes a seen/unseen split of your own images as a table: ``mmcluspro make-split``."""
import sys
from collections import Counter
from collections.abc import Sequence

from mmcluspro.datasets.folder_tree import left_out, scan_folders
from mmcluspro.datasets.image_folder import ImageFolder
from mmcluspro.datasets.photo_check import split_warnings
from mmcluspro.datasets.splits import PHASES
from mmcluspro.datasets.splitting import count_groups, find_groups, make_split
from mmcluspro.datasets.table_file import read_table, write_table
from mmcluspro.errors import Fault, describe, printable
from mmcluspro.flags.data_flags import parse_make_split


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line and runs it."""
    args = parse_make_split(argv)
    if args.table is None and args.root.suffix.lower() == '.csv' and args.root.is_file():
        args.table, args.root = args.root, args.root.parent
    rows = read_table(args.table, need_split=False) if args.table else scan_folders(
        args.root, args.separator)
    if not args.table and (others := left_out(args.root)):
        print(printable(others))
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
        print(f'warning: {printable(line)}', file=sys.stderr)
    print(f'written to {args.out}')
    return 0
