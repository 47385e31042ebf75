#!/usr/bin/env python
"""Brings UT-Zappos50K into the published layout.

Unpack ut-zap50k-images.zip and the split archive into one folder, then

    python tools/dataset_converters/prepare_ut_zappos.py data/ut-zap50k

The original archive sorts by shoe and brand ("Shoes/Oxfords/<brand>/<id>.jpg", the
metadata's `_image`); the split wants "<attr>_<obj>/<id>.jpg" (its `image`). Files are
copied, or linked with --mode, and the result is checked. It can be run again at
any time, goes on where it stopped, and deletes nothing.
"""
import argparse
import sys
from pathlib import Path

from file_steps import Step, carry_out, lift

from mmcluspro.datasets.check import check_dataset
from mmcluspro.datasets.folders import ImageFolder
from mmcluspro.datasets.layout import DEFAULT_SPLIT, metadata_file, read_metadata, row_faults
from mmcluspro.engine.messages import run_command
from mmcluspro.errors import raise_faults
from mmcluspro.utils.files import inside, within

SOURCES = ('_images', 'ut-zap50k-images', 'ut-zap50k-images-square')


def spellings(name: str) -> list[str]:
    """The path, and with the brand's last dot written in the other ways found in archives."""
    folder, _, file = name.rpartition('/')
    bare = folder.rstrip('.')
    return [name, *(f'{bare}{dot}/{file}' for dot in ('%2E', '.', ''))]


def find_source(root: Path, given: Path | None) -> Path:
    candidates = [given] if given else [root / name for name in SOURCES]
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f'None of {", ".join(map(str, candidates))} is a folder; unpack '
                            'ut-zap50k-images.zip there or set --source.')


def reorganise(root: Path, source: Path, split: str, mode: str) -> list[Step]:
    """A step for each row of the metadata that has a pair."""
    path = metadata_file(root, split)
    rows = read_metadata(path)
    raise_faults(row_faults(rows, path))
    archive = ImageFolder(source)
    steps = {}
    for number, row in enumerate(rows):
        if 'NA' in (row['attr'], row['obj'], row['set']):
            continue
        if not isinstance(row.get('_image'), str):
            raise ValueError(f'{path} row {number} has no _image: this is not the metadata of '
                             'UT-Zappos.')
        found = archive.find(*spellings(row['_image']))
        steps[row['image']] = Step(mode, Path(found) if found else inside(source, row['_image']),
                                   inside(root / 'images', row['image']))
    return list(steps.values())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('root', type=Path, help='folder of the dataset')
    parser.add_argument('--source', type=Path,
                        help=f'the unpacked archive (default: {", ".join(SOURCES)} in ROOT)')
    parser.add_argument('--mode', choices=('copy', 'hardlink', 'symlink'), default='copy')
    parser.add_argument('--split', default=DEFAULT_SPLIT)
    parser.add_argument('--dry-run', action='store_true', help='only print what would be done')
    args = parser.parse_args(argv)
    steps = lift(args.root, [args.split, metadata_file('', args.split).name])
    carry_out(steps, args.root, args.dry_run)
    if steps and args.dry_run:
        print('the images are planned once these are in place')
        return 0
    source = find_source(args.root, args.source)
    if args.mode == 'symlink' and not within(args.root, source):
        parser.error(f'--mode symlink needs the archive below {args.root}, because readers follow '
                     'no link out of the dataset; move it there, or use --mode hardlink or copy.')
    carry_out(reorganise(args.root, source, args.split, args.mode), args.root,
              args.dry_run)
    if args.dry_run:
        return 0
    report = check_dataset(args.root, 'utzappos', args.split)
    print(report)
    return 0 if report.ok else 1


if __name__ == '__main__':
    run_command(lambda: sys.exit(main()))
