"""Draws which attributes, objects and pairs are taken for which others; also as CSV.

    mmcluspro confusion CHECKPOINT.pth

Rows are truths, columns the answers of mmcluspro predict, in percent of the row. The picture has
the classes with most mistakes, the CSV all mistakes.
"""
import argparse
from collections.abc import Sequence
from pathlib import Path

from ..confusion import MOST, confusions, draw_confusions, write_confusions
from ..options import add_out_flag, add_run_flags, open_checkpoints, save_and_say
from ..phase_answers import answer_phase
from ..phase_run import evenly

KINDS = ('attributes', 'objects', 'pairs')


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog='mmcluspro confusion', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('checkpoint')
    parser.add_argument('--of', nargs='+', choices=KINDS, default=KINDS,
                        help='what to draw (default: all three)')
    parser.add_argument('--most', type=int, default=MOST,
                        help=f'classes of a picture at most (default: {MOST})')
    parser.add_argument('--bias', type=float, help='added to the scores of unseen pairs '
                        '(default: that of the checkpoint)')
    parser.add_argument('--max-images', type=int, metavar='N',
                        help='look at N evenly spread images only (default: all)')
    add_run_flags(parser, 'test')
    add_out_flag(parser, 'confusion.png')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and draws."""
    args = parse_args(argv)
    (model, ), dataset = open_checkpoints([args.checkpoint], args)
    indices = evenly(len(dataset), args.max_images)
    answers = answer_phase(model, dataset, indices, args.bias, args.batch_size,
                           f'{len(indices)} {args.phase} images')
    found = confusions(answers)
    shown = {kind: found[kind] for kind in args.of}
    save_and_say(draw_confusions(shown, args.most), args.out)
    out = Path(args.out)
    print(write_confusions(found, out.with_suffix('.csv') if out.suffix else f'{out}.csv'))
