"""Draws the accuracy of each attribute and object: ``mmcluspro accuracy``."""
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from mmcluspro.flags.picture_flags import parse_accuracy as parse_args

from ..accuracy import (
    PrimitiveAccuracy,
    accuracy_by_class,
    draw_accuracy,
    write_accuracy,
)
from ..options import (
    open_checkpoints,
    run_names,
    save_and_say,
)
from ..phase_run import run_phase
from ..primitives import names_of

TITLES = {'attr': 'Attributes', 'obj': 'Objects'}


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
