#!/usr/bin/env python
"""Writes pair lists and metadata for AO-CLEVr from the pickled splits of its authors.

Unpack the images into ROOT/images and the splits into ROOT/metadata_pickles, then

    python tools/dataset_converters/prepare_ao_clevr.py data/ao_clevr --variant UV_random \\
        --comp-seed 5000 --seen-seed 0

The options are parts of the names of the files, such as
metadata_ao_clevr__UV_random__comp_seed_5000__seen_seed_0__train.pkl; without them the tool lists
what there is. The new split is called UV_random-5000-0. Nothing that a pickle asks for is run.
"""
import argparse
import re
import sys
from itertools import count
from pathlib import Path
from typing import Any

from convert_metadata import ENTRIES, PlainUnpickler, plain

from mmcluspro.datasets import write_layout
from mmcluspro.datasets.check import check_dataset
from mmcluspro.engine.messages import run_command
from mmcluspro.errors import FileError, printable, reason_of

PHASES = dict(train='train', valid='val', test='test')
NAME = re.compile(r'metadata_ao_clevr__(.+)__comp_seed_(\d+)__seen_seed_(\d+)__train\.pkl')
REMEDY = 'Download metadata_pickles of AO-CLEVr again.'


def read_split(folder: Path, variant: str, comp_seed: int,
               seen_seed: int) -> tuple[list[dict[str, str]], dict[str, list[tuple[str, str]]]]:
    """Rows of the metadata, and the pairs that each phase has images of."""
    rows, pairs = [], {}
    for subset, phase in PHASES.items():
        path = folder / (f'metadata_ao_clevr__{variant}__comp_seed_{comp_seed}__seen_seed_'
                         f'{seen_seed}__{subset}.pkl')
        if not path.is_file():
            raise FileError(path, 'there is no such split', 'Without options the tool lists the '
                            'splits in the folder.')
        samples = read_samples(path, f'{phase}_data')
        rows += [dict(image=image, attr=attr, obj=obj, set=phase) for image, attr, obj in samples]
        pairs[phase] = sorted({(attr, obj) for _, attr, obj in samples})
    return rows, pairs


def read_samples(path: Path, key: str) -> list[Any]:
    """Image, attribute and object of each sample under a key of a pickled dict."""
    try:
        with open(path, 'rb') as file:
            samples = plain(PlainUnpickler(file, encoding='latin1').load()[key],
                            count(ENTRIES, -1))
    except Exception as error:  # bytes that are not a pickle raise almost anything
        raise FileError(path, f'it cannot be read as plain data ({reason_of(error)})',
                        REMEDY) from error
    if not isinstance(samples, list) or not samples or not all(
            isinstance(sample, list) and len(sample) == 3
            and all(isinstance(name, str) for name in sample) for sample in samples):
        raise FileError(path, f'{key} is not a list of image, attribute and object', REMEDY)
    return samples


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('root', type=Path, help='folder with images/ and metadata_pickles/')
    parser.add_argument('--variant', help='UV_random or VT_random')
    parser.add_argument('--comp-seed', type=int)
    parser.add_argument('--seen-seed', type=int, default=0)
    args = parser.parse_args(argv)
    folder = args.root.expanduser() / 'metadata_pickles'
    if args.variant is None or args.comp_seed is None:
        found = {match.groups()[:3] for path in folder.glob('*.pkl')
                 if (match := NAME.fullmatch(path.name))}
        for variant, comp, seen in sorted(found):
            print(f'--variant {printable(variant)} --comp-seed {comp} --seen-seed {seen}')
        print(f'{len(found)} splits in {folder}: name one of them.')
        return 1
    rows, pairs = read_split(folder, args.variant, args.comp_seed, args.seen_seed)
    split = f'{args.variant}-{args.comp_seed}-{args.seen_seed}'
    print(f'→ {write_layout(args.root, rows, pairs, split)}, split={split!r}')
    report = check_dataset(args.root, 'aoclevr', split)
    print(report)
    return 0 if report.ok else 1


if __name__ == '__main__':
    run_command(lambda: sys.exit(main()))
