"""Shows images with the answers of one or two models, right in green and wrong in red (Fig. 3).

    mmcluspro cases CHECKPOINT.pth              my model's mistakes, the most confident first
    mmcluspro cases BASELINE.pth CLUSPRO.pth    one model against another

Two models give three groups: only the second is right, only the first, and neither; images are
drawn at random, seen and unseen pairs in turn. Answers are those of mmcluspro predict: the best of
all known pairs after the bias that validation chose for each checkpoint (--bias sets another one).
"""
import argparse
from collections.abc import Sequence

from mmcluspro.datasets import CZSLDataset

from ..cases import Case, choose_cases, draw_cases, outcome_groups
from ..options import (
    add_out_flag,
    add_run_flags,
    open_checkpoints,
    run_names,
    save_and_say,
)
from ..phase_answers import PhaseAnswers, answer_phase
from ..phase_run import evenly, picture


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog='mmcluspro cases', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('checkpoints', nargs='+', metavar='CHECKPOINT',
                        help='one file, or two to compare')
    parser.add_argument('--names', nargs='+', metavar='NAME',
                        help='names of the models (default: their folders)')
    parser.add_argument('--count', type=int,
                        help='images a group (default: 24 of one model, 6 of two)')
    parser.add_argument('--columns', type=int, default=6, help='images in a row (default: 6)')
    parser.add_argument('--bias', type=float, help='added to the scores of unseen pairs '
                        "(default: each checkpoint's own)")
    parser.add_argument('--max-images', type=int, metavar='N',
                        help='look at N evenly spread images only (default: all)')
    parser.add_argument('--seed', type=int, default=0,
                        help='with two models: another seed, other images')
    add_run_flags(parser, 'test')
    add_out_flag(parser, 'cases.png')
    args = parser.parse_args(argv)
    if len(args.checkpoints) > 2:
        parser.error(f'Give one checkpoint or two, not {len(args.checkpoints)}.')
    if args.count is None:
        args.count = 24 if len(args.checkpoints) == 1 else 6
    if args.count < 1 or args.columns < 1:
        parser.error('--count and --columns must be at least 1.')
    return args


def make_case(dataset: CZSLDataset, row: int, found: Sequence[PhaseAnswers],
              side: int = 256) -> Case:
    """An image with names for its labels.

    Args:
        dataset (CZSLDataset): Of the images.
        row (int): Of the answers.
        found (Sequence[PhaseAnswers]): Of each model, for the same images.
        side (int): Pixels. Defaults to 256.
    """
    first = found[0]
    return Case(picture(dataset, int(first.index[row]), side),
                first.pair_names(first.outcomes.target[row]),
                [part.pair_names(part.outcomes.answer[row]) for part in found],
                not bool(first.seen[row]),
                float(first.outcomes.probability[row]) if len(found) == 1 else None)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and draws."""
    args = parse_args(argv)
    names = run_names(args.checkpoints, args.names)
    models, dataset = open_checkpoints(args.checkpoints, args)
    indices = evenly(len(dataset), args.max_images)
    found = [answer_phase(model, dataset, indices, args.bias, args.batch_size,
                          f'{name}: {len(indices)} {args.phase} images')
             for name, model in zip(names, models)]
    groups = _mistakes(found[0], args.count, names[0]) if len(found) == 1 else _compared(
        found, names, args.count, args.seed)
    for title, _ in groups:
        print(title)
    shown = [(title, [make_case(dataset, row, found) for row in rows]) for title, rows in groups]
    save_and_say(draw_cases(shown, names, args.columns), args.out)


def _mistakes(answers: PhaseAnswers, count: int, name: str) -> list[tuple[str, list[int]]]:
    wrong = len(answers.mistakes())
    return [(f'Mistakes of {name}, most confident first ({wrong} of {len(answers.index)} images)',
             answers.mistakes(count))]


def _compared(found: Sequence[PhaseAnswers], names: Sequence[str], count: int,
              seed: int) -> list[tuple[str, list[int]]]:
    first, second = found
    groups = outcome_groups(first.outcomes.right, second.outcomes.right)
    total = len(first.index)
    print(f'Both are right: {len(groups["both_right"])} of {total} images')
    titles = {'success': f'Only {names[1]} is right', 'failure': f'Only {names[0]} is right',
              'both_wrong': 'Both are wrong'}
    return [(f'{title} ({len(groups[key])} of {total} images)',
             choose_cases(groups[key], first.outcomes.target, first.seen, count, seed))
            for key, title in titles.items()]
