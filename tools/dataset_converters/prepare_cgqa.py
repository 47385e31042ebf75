#!/usr/bin/env python
"""Brings C-GQA, or another dataset whose archive has the published layout, into place.

Unpack the archive into a folder, then

    python tools/dataset_converters/prepare_cgqa.py data/cgqa
    python tools/dataset_converters/prepare_cgqa.py data/clothing16k --dataset clothing16k

It moves images/, the pair lists and the metadata up to that folder when the
archive has put them deeper, and checks the result. It can be run again at any
time and deletes nothing.
"""
import argparse
import sys
from pathlib import Path

from file_steps import carry_out, lift

from mmcluspro.datasets.check import check_dataset
from mmcluspro.datasets.layout import DEFAULT_SPLIT, metadata_file
from mmcluspro.engine.messages import run_command


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('root', type=Path, help='folder of the dataset')
    parser.add_argument('--dataset', default='cgqa',
                        choices=['cgqa', 'clothing16k', 'aoclevr', 'vawczsl'])
    parser.add_argument('--split', default=DEFAULT_SPLIT)
    parser.add_argument('--dry-run', action='store_true', help='only print what would be done')
    args = parser.parse_args(argv)
    names = ['images', args.split, metadata_file('', args.split).name]
    carry_out(lift(args.root, names), args.root, args.dry_run)
    if args.dry_run:
        return 0
    report = check_dataset(args.root, args.dataset, args.split)
    print(report)
    return 0 if report.ok else 1


if __name__ == '__main__':
    run_command(lambda: sys.exit(main()))
