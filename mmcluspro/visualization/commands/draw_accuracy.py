"""Draws the accuracy of each attribute and object, of one or several models; also as CSV.

    mmcluspro accuracy BASELINE.pth CLUSPRO.pth

An attribute (object) counts as right when that of the best pair of the closed world is right, as in
attr_acc and obj_acc of the evaluation: without a bias, unless --bias adds one.
"""
import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from ..accuracy import (
    PrimitiveAccuracy,
    accuracy_by_class,
    draw_accuracy,
    write_accuracy,
)
from ..options import (
    add_out_flag,
    add_run_flags,
    open_checkpoints,
    run_names,
    save_and_say,
)
from ..phase_run import run_phase
from ..primitives import names_of

TITLES = {'attr': 'Attributes', 'obj': 'Objects'}


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog='mmcluspro accuracy', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('checkpoints', nargs='+', metavar='CHECKPOINT')
    parser.add_argument('--names', nargs='+', help='names of the models (default: their folders)')
    parser.add_argument('--most', type=int, default=24, help='rows of a panel at most: the most '
                        'frequent primitives (default: 24); the CSV has all')
    parser.add_argument('--bias', type=float, default=0.0,
                        help='added to the scores of unseen pairs (default: 0)')
    add_run_flags(parser, 'test')
    add_out_flag(parser, 'primitive_accuracy.png')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and draws."""
    args = parse_args(argv)
    names = run_names(args.checkpoints, args.names)
    models, dataset = open_checkpoints(args.checkpoints, args)
    pairs = dataset.space.pairs
    tables = {title: PrimitiveAccuracy(names_of(dataset.space, branch), np.empty(0), {})
              for branch, title in TITLES.items()}
    for name, model in zip(names, models):
        found = [(pairs[batch.answer], batch.labels['attr'], batch.labels['obj'])
                 for batch in run_phase(model, dataset, None, args.bias, args.batch_size,
                                        f'{name}: {len(dataset)} {args.phase} images')]
        answers, *labels = (torch.cat(part).numpy() for part in zip(*found))
        for column, table in enumerate(tables.values()):
            table.images, accuracy = accuracy_by_class(
                labels[column], answers[:, column], len(table.names))
            table.accuracy = {**table.accuracy, name: accuracy}
    for title, table in tables.items():
        means = {name: np.nansum(table.images * np.nan_to_num(accuracy)) / table.images.sum()
                 for name, accuracy in table.accuracy.items()}
        print(f'{title}: ' + ', '.join(f'{name} {mean:.1f} %' for name, mean in means.items()))
    save_and_say(draw_accuracy(tables, args.most), args.out)
    out = Path(args.out)
    print(write_accuracy(tables, out.with_suffix('.csv') if out.suffix else f'{out}.csv'))
