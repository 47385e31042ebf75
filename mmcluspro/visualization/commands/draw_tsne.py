"""Draws t-SNE maps of attribute and object features: ``mmcluspro tsne``."""
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mmcluspro.flags.picture_flags import parse_tsne as parse_args

from ..options import (
    open_checkpoints,
    run_names,
    save_and_say,
)
from ..phase_run import evenly, run_phase
from ..primitives import most_frequent, names_of, split_by_branch
from ..tsne import Cloud, draw_tsne, require_sklearn

TITLES = {'attr': 'Attributes', 'obj': 'Objects'}


def make_cloud(model: Any, branch: str, features: torch.Tensor, labels: torch.Tensor,
               classes: list[int]) -> Cloud:
    """Features and prototypes of the chosen classes."""
    place = {index: number for number, index in enumerate(classes)}
    rows = torch.isin(labels, torch.tensor(classes))
    cloud = Cloud(features[rows].numpy(), np.array([place[i] for i in labels[rows].tolist()]))
    bank = model.head.clustered.get(branch)
    if bank is not None:
        owner = torch.arange(bank.num_classes).repeat_interleave(bank.sizes.cpu())
        mine = torch.isin(owner, torch.tensor(classes))
        cloud.prototypes = bank.prototypes.cpu()[mine].numpy()
        cloud.prototype_labels = np.array([place[i] for i in owner[mine].tolist()])
    return cloud


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and draws."""
    args = parse_args(argv)
    require_sklearn()
    names = run_names(args.checkpoints, args.names)
    models, dataset = open_checkpoints(args.checkpoints, args)
    chosen = split_by_branch(dataset.space, args.primitives or [])
    indices = evenly(len(dataset), args.max_images)
    collected = []
    for name, model in zip(names, models):
        batches = list(run_phase(model, dataset, indices, batch_size=args.batch_size,
                                 progress=f'{name}: features of {len(indices)} images'))
        if not batches[0].features:
            raise ValueError(f'{name} has no attribute and object features: it has one path only.')
        collected.append(batches)
    clouds, rows, classes_of_rows = [], [], []
    for branch, title in TITLES.items():
        labels = torch.cat([batch.labels[branch] for batch in collected[0]])
        known = names_of(dataset.space, branch)
        classes = chosen[branch]
        if args.primitives is None:
            classes = most_frequent(labels, len(known), args.most)
        if not classes:
            continue
        clouds.append([make_cloud(model, branch, torch.cat(
            [batch.features[branch] for batch in batches]), labels, classes)
            for model, batches in zip(models, collected)])
        rows.append(title)
        classes_of_rows.append([known[index] for index in classes])
    figure = draw_tsne(clouds, rows, names, classes_of_rows, args.perplexity, args.seed, print)
    save_and_say(figure, args.out)
