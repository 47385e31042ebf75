"""Shows images with the answers of one or two models: ``mmcluspro cases``."""
from collections.abc import Sequence

from mmcluspro.datasets import CZSLDataset
from mmcluspro.flags.picture_flags import parse_cases as parse_args

from ..cases import Case, choose_cases, draw_cases, outcome_groups
from ..options import (
    open_checkpoints,
    run_names,
    save_and_say,
)
from ..phase_answers import PhaseAnswers, answer_phase
from ..phase_run import evenly, picture


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
