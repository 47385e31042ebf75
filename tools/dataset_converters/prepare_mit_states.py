#!/usr/bin/env python
"""Brings MIT-States into the published layout.

Unpack release_dataset.zip (images) and the split archive into one folder, then

    python tools/dataset_converters/prepare_mit_states.py data/mit-states

It moves images/, the pair lists and the metadata up to that folder, renames
"ancient building/" to "ancient_building/" and checks the result. It can be run
again at any time and deletes nothing.
"""
import argparse
import sys
from pathlib import Path

from file_steps import Step, carry_out, lift

from mmcluspro.datasets.check import check_dataset
from mmcluspro.datasets.layout import DEFAULT_SPLIT, metadata_file
from mmcluspro.engine.messages import run_command


def underscores(images: Path) -> list[Step]:
    """Renames of all folders with a space in their name."""
    return [Step('rename', folder, folder.with_name(folder.name.replace(' ', '_')))
            for folder in sorted(images.glob('* *')) if folder.is_dir()]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('root', type=Path, help='folder of the dataset')
    parser.add_argument('--split', default=DEFAULT_SPLIT)
    parser.add_argument('--dry-run', action='store_true', help='only print what would be done')
    args = parser.parse_args(argv)
    steps = lift(args.root, ['images', args.split, metadata_file('', args.split).name])
    carry_out(steps, args.root, args.dry_run)
    # In a dry run the folders are still where the archive put them.
    images = next((step.source for step in steps
                   if args.dry_run and step.target.name == 'images'), args.root / 'images')
    carry_out(underscores(images), args.root, args.dry_run)
    if args.dry_run:
        return 0
    report = check_dataset(args.root, 'mitstates', args.split)
    print(report)
    return 0 if report.ok else 1


if __name__ == '__main__':
    run_command(lambda: sys.exit(main()))
