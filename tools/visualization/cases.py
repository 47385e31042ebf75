"""Shows images with the answers of two models, right in green and wrong in red (Fig. 3).

    python tools/visualization/cases.py BASELINE.pth CLUSPRO.pth

Three groups: only the second model is right, only the first, and neither; images are drawn at
random, seen and unseen pairs in turn. Answers are the best pair of the closed world after the bias
that validation chose for each checkpoint (--bias sets another one).
"""
import argparse
from typing import Any

import numpy as np
import torch

from mmcluspro.datasets import CZSLDataset
from mmcluspro.engine.messages import run_command
from mmcluspro.visualization.cases import Case, choose_cases, draw_cases, outcome_groups
from mmcluspro.visualization.options import (
    add_out_flag,
    add_run_flags,
    open_checkpoints,
    run_names,
    save_and_say,
)
from mmcluspro.visualization.phase_run import chosen_bias, evenly, picture, run_phase


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('baseline', help='checkpoint of the first model')
    parser.add_argument('cluspro', help='checkpoint of the second model')
    parser.add_argument('--names', nargs=2, default=['baseline', 'ClusPro'], metavar='NAME',
                        help='names of the models (default: baseline ClusPro)')
    parser.add_argument('--count', type=int, default=6, help='images a group (default: 6)')
    parser.add_argument('--columns', type=int, default=6, help='images in a row (default: 6)')
    parser.add_argument('--bias', type=float, help='added to the scores of unseen pairs, for both '
                        "(default: each checkpoint's own)")
    parser.add_argument('--max-images', type=int, metavar='N',
                        help='look at N evenly spread images only (default: all)')
    parser.add_argument('--seed', type=int, default=0, help='another seed, other images')
    add_run_flags(parser, 'test')
    add_out_flag(parser, 'cases.png')
    args = parser.parse_args()
    if args.count < 1 or args.columns < 1:
        parser.error('--count and --columns must be at least 1.')
    return args


def make_case(dataset: CZSLDataset, index: int, pair: int, answers: list[int]) -> Case:
    """An image with names for its labels."""
    space = dataset.space
    names = [(space.attributes[attr], space.objects[obj])
             for attr, obj in space.pairs[[pair, *answers]].tolist()]
    return Case(picture(dataset, index, 256), names[0], names[1:], not bool(space.seen[pair]))


def main() -> None:
    args = parse_args()
    paths = [args.baseline, args.cluspro]
    names = run_names(paths, args.names)
    models, dataset = open_checkpoints(paths, args)
    indices = evenly(len(dataset), args.max_images)
    answers, truth = [], torch.empty(0)
    for name, model in zip(names, models):
        bias = chosen_bias(model) if args.bias is None else args.bias
        batches: list[Any] = [
            (batch.answer, batch.labels['pair']) for batch in run_phase(
                model, dataset, indices, bias, args.batch_size,
                f'{name}: {len(indices)} {args.phase} images, bias {bias:.3g}')]
        found, truth = (torch.cat(part) for part in zip(*batches))
        answers.append(found.numpy())
    pairs = truth.numpy()
    groups = outcome_groups(*(answer == pairs for answer in answers))
    titles = {'success': f'Only {names[1]} is right', 'failure': f'Only {names[0]} is right',
              'both_wrong': 'Both are wrong'}
    print(f'Both are right: {len(groups["both_right"])} of {len(pairs)} images')
    shown = []
    for key, title in titles.items():
        title += f' ({len(groups[key])} of {len(pairs)} images)'
        print(title)
        chosen = choose_cases(groups[key], pairs, np.asarray(dataset.space.seen)[pairs],
                              args.count, args.seed)
        shown.append((title, [make_case(dataset, indices[i], int(pairs[i]),
                                        [int(answer[i]) for answer in answers]) for i in chosen]))
    save_and_say(draw_cases(shown, names, args.columns), args.out)


if __name__ == '__main__':
    run_command(main)
