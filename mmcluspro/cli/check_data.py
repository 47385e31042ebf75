"""Counts a dataset and lists what is wrong with it: ``mmcluspro check-data``."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmcluspro.errors import printable

from .flags import add_photo_flags, make_parser

CHECK_DATA = """Count a dataset, compare it with the published numbers, and list what is wrong.

    mmcluspro check-data data/ut-zap50k --dataset utzappos
    mmcluspro check-data photos/ --decode        # your own images: a folder, or a CSV file

The exit code is 0 if nothing is wrong, otherwise 1."""


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro check-data``."""
    parser = make_parser('check-data', CHECK_DATA)
    parser.add_argument('root', help='folder with images/, the pair lists and the metadata; or '
                        'your own images: a folder of folders attribute_object/, or a table '
                        '(.csv, .tsv)')
    parser.add_argument('--dataset', default='generic', help='dataset whose published counts are '
                        'expected, such as utzappos or fashion; another word lists them. shapes '
                        'and generic check consistency only (default: generic)')
    parser.add_argument('--split', help='folder of the pair lists (default: that of the dataset)')
    add_photo_flags(parser)
    parser.add_argument('--decode', action='store_true', help='also read every image, and look for '
                        'images that look the same under two labels (slow)')
    parser.add_argument('--limit', type=int, default=10,
                        help='problems of each kind to show (default: 10)')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line and runs it."""
    from mmcluspro.datasets.check import check_dataset, check_photos, is_own_data
    from mmcluspro.datasets.folders import empty_folders, left_out
    from mmcluspro.datasets.table_file import Columns
    args = parse_args(argv)
    _check_root(Path(args.root).expanduser(), args.dataset)
    if args.dataset == 'generic' and args.split is None and is_own_data(args.root):
        report = check_photos(args.root, args.separator, args.decode, Columns(**args.columns))
    else:
        report = check_dataset(args.root, args.dataset, args.split, args.decode)
    print(report.text(args.limit))
    if is_own_data(args.root) and Path(args.root).expanduser().is_dir():
        for line in filter(None, (left_out(args.root), empty_folders(args.root))):
            print(printable(line))
    return 0 if report.ok else 1


def _check_root(root: Path, dataset: str) -> None:
    """Raises a clear error if there is nothing to check."""
    from mmcluspro.datasets.check import is_own_data, is_table
    if not root.exists():
        raise FileNotFoundError(f'{root} does not exist. Give a folder of images, a table (.csv, '
                                '.tsv), or the folder of a published dataset.')
    if root.is_file() and not is_table(root):
        raise ValueError(f'{root} is neither a folder nor a table (.csv, .tsv).')
    if dataset == 'generic' and root.is_dir() and not is_own_data(root) and not any(
            root.rglob('*_pairs.txt')):
        raise ValueError(
            f'No image below {root}; expected folders attribute_object/ of images, or a published '
            'dataset with images/ and lists of pairs (docs/data.md).')
