#!/usr/bin/env python
"""Counts a dataset, compares with the published numbers, lists what is wrong.

    python tools/dataset_converters/check_dataset.py data/ut-zap50k --dataset ut-zappos

Ends with 0 when nothing is wrong, otherwise with 1.
"""
import argparse
import sys

from mmcluspro.datasets.check import DATASET_NAMES, check_dataset
from mmcluspro.datasets.splits import DEFAULT_SPLIT


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('root', help='folder with images/, the pair lists and the metadata')
    parser.add_argument('--dataset', choices=DATASET_NAMES, default='generic',
                        help='whose counts to expect; shapes and generic: only consistency')
    parser.add_argument('--split', default=DEFAULT_SPLIT, help='folder of the pair lists')
    parser.add_argument('--decode', action='store_true', help='also read every image (slow)')
    parser.add_argument('--limit', type=int, default=10, help='faults of each kind to show')
    args = parser.parse_args(argv)
    report = check_dataset(args.root, args.dataset, args.split, args.decode)
    print(report.text(args.limit))
    return 0 if report.ok else 1


if __name__ == '__main__':
    sys.exit(main())
