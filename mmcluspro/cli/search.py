"""Finds the photographs that show a pair: ``mmcluspro search``."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmcluspro.errors import printable

from .flags import add_model_flags, make_parser, model_options

SEARCH = """Find the photographs that show an attribute and an object, most probable first.

    mmcluspro search "suede boots" photos/
    mmcluspro search "black, sports shoes" photos/ --model best_czsl_auc_epoch_16.pth --top-k 50

New words are allowed. The features of the photographs are kept by their content, so that only new
or changed ones are computed the next time."""


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro search``."""
    parser = make_parser('search', SEARCH)
    parser.add_argument('words', help='an attribute and an object, with a comma between names of '
                        'several words')
    parser.add_argument('images', nargs='+', help='files, folders or quoted patterns')
    parser.add_argument('--model', metavar='FILE', help='checkpoint or published file (default: '
                        'the best checkpoint of work_dirs/<name of the folder>, where mmcluspro '
                        'train puts it)')
    parser.add_argument('--top-k', type=int, default=10, help='photographs to list (default: 10)')
    parser.add_argument('--out', help='also write all of these to a .csv file')
    parser.add_argument('--device', help='cpu, cuda, cuda:1, mps (default: a GPU if there is one)')
    add_model_flags(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Prints photographs with the probability of the pair."""
    from mmcluspro.api import load
    from mmcluspro.utils.files import write_text
    from mmcluspro.utils.plain_files import csv_text
    args = parse_args(argv)
    model = load(args.model or _trained_on(args.images[0]), args.device, **model_options(args))
    found = model.search(args.words, args.images, args.top_k)
    for photo in found:
        print(printable(f'{100 * photo.probability:5.1f} %  {photo.image}'))
    if args.out:
        write_text(args.out, csv_text([('image', 'probability'), *(
            (photo.image, round(photo.probability, 6)) for photo in found)]))


def _trained_on(folder: str) -> Path:
    """The best checkpoint of the run that was trained on a folder."""
    run = Path('work_dirs') / Path(folder).expanduser().resolve().name
    found = sorted(run.glob('best_*.pth'), key=lambda path: path.stat().st_mtime)
    if not found:
        raise FileNotFoundError(f'There is no best_*.pth in {run}: give the model with --model '
                                f'FILE, or train one with mmcluspro train {folder}.')
    return found[-1]
