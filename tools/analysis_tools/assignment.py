"""Which features should a transport problem see? Compares the batch with queues of several sizes.

    python tools/analysis_tools/assignment.py --name shapes-v2 --checkpoint work_dirs/…/best_*.pth
    python tools/analysis_tools/assignment.py --name MIT-States --batch 64 --images 30338 \
        --pairs data/mit-states/compositional-split-natural/train_pairs.txt

A checkpoint gives the features and prototypes of its own training images. A list of pairs gives a
label sequence at real size, in which each pair is as frequent as any other; the features are a
synthetic mixture then (five looks of a primitive, chosen by the partner), and the prototypes come
from k-means. Weights stay the same throughout. --out adds the numbers to a file, and

    python tools/analysis_tools/assignment.py --out docs/results/assignment.jsonl \
        --page docs/clustering.md

writes the table of that file into a page.
"""
import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.dataset import default_collate
from torch.utils.data import DataLoader

from experiments.assignment_quality import Branch, compare, mixture
from experiments.readme import fill_page
from experiments.run_store import read_lines
from mmcluspro import load
from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.features import cluster_features
from mmcluspro.engine.messages import run_command
from mmcluspro.models.prototypes import PrototypeBank

NAMES = {'nearest': 'nearest prototype', 'batch': "`scope='batch'`"}


def from_checkpoint(path: str, config: str | None) -> dict[str, Branch]:
    """Features of the training images of a checkpoint, without augmentation."""
    trained = load(path, config=config)
    model = trained.network
    dataset = trained.dataset('train')
    loader = DataLoader(dataset, batch_size=256, collate_fn=default_collate)
    features, labels = cluster_features(model, loader, np.arange(len(dataset)))
    return {branch: Branch(torch.nn.functional.normalize(features[branch], dim=1),
                           labels[branch], bank)
            for branch, bank in model.head.clustered.items()}


def from_pairs(path: Path, images: int, dim: int) -> dict[str, Branch]:
    """A drawn label sequence with synthetic features, and prototypes by k-means."""
    words = [line.split() for line in path.read_text(encoding='utf-8').splitlines() if line]
    sides = [sorted(set(side)) for side in zip(*words)]
    pairs = torch.tensor([[names.index(word) for names, word in zip(sides, pair)]
                          for pair in words])
    space = CompositionSpace.from_pairs(*sides, pairs, torch.ones(len(pairs), dtype=torch.bool))
    drawn = torch.randint(len(pairs), (images, ), generator=torch.Generator().manual_seed(0))
    branches = {}
    for i, branch in enumerate(('attr', 'obj')):
        labels, partners = pairs[drawn, i], pairs[drawn, 1 - i]
        features = mixture(labels, partners, dim, seed=i)
        bank = PrototypeBank(len((space.attributes, space.objects)[i]), dim, queue_size=0)
        bank.initialise(features, labels)
        branches[branch] = Branch(features, labels, bank)
    return branches


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One record by strategy and branch."""
    branches = (from_checkpoint(args.checkpoint, args.config) if args.checkpoint
                else from_pairs(args.pairs, args.images, args.dim))
    total = len(branches['attr'].labels)
    chosen = torch.randperm(total, generator=torch.Generator().manual_seed(0))[
        :args.steps * args.batch]
    about = dict(data=args.name, features='trained' if args.checkpoint else 'synthetic',
                 images=total, assigned=len(chosen), batch=args.batch)
    return [about | record for record in compare(branches, args.batch, chosen)]


def table(records: list[dict[str, Any]]) -> str:
    """Markdown, a row by dataset and strategy."""
    rows: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for record in records:
        rows.setdefault((record['data'], record['strategy']), {})[record['branch']] = record
    lines = ['| data, batch | problem | keeps its prototype | agrees with offline | '
             'by transport | time | queue | step |', '|---|---|---|---|---|---|---|---|']
    for (data, strategy), found in rows.items():
        attr, obj = found['attr'], found['obj']
        cells = [f'{data}, {attr["batch"]}', NAMES.get(strategy, strategy)]
        cells += [f'{attr[key]:.2f} / {obj[key]:.2f}' for key in ('stable', 'agrees', 'transport')]
        cells += [f'{attr["ms"]:.1f} ms', f'{attr["queue_mb"]:.1f} MB', f'{attr["step_mb"]:.1f} MB']
        lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group()
    source.add_argument('--checkpoint', metavar='FILE', help='of a head with prototypes')
    source.add_argument('--pairs', type=Path, metavar='FILE', help='"attribute object" per line')
    parser.add_argument('--config', help='of the checkpoint, where towers or features come from '
                        'local files')
    parser.add_argument('--name', default='own data', help='of the data, in the records')
    parser.add_argument('--batch', type=int, default=64, help='default 64')
    parser.add_argument('--steps', type=int, default=60, help='batches to assign (default 60)')
    parser.add_argument('--images', type=int, default=20000,
                        help='length of the sequence that --pairs draws (default 20000)')
    parser.add_argument('--dim', type=int, default=768,
                        help='width of synthetic features (default 768)')
    parser.add_argument('--out', type=Path, metavar='FILE',
                        help='JSON lines; records of the same name are replaced')
    parser.add_argument('--page', type=Path, metavar='FILE',
                        help='page with <!-- assignment --> and <!-- /assignment -->')
    args = parser.parse_args()
    if args.page and not args.out:
        parser.error('--page shows the records of a file: give it with --out.')
    records = list(read_lines(args.out)) if args.out and args.out.exists() else []
    if args.checkpoint or args.pairs:
        new = measure(args)
        records = [each for each in records if each['data'] != args.name] + new
        if args.out:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(''.join(json.dumps(each) + '\n' for each in records))
        print(table(new))
    elif not args.page:
        parser.error('give --checkpoint, --pairs or --page.')
    if args.page and not fill_page(args.page, dict(assignment=table(records))):
        sys.exit(f'{args.page} has no line <!-- assignment -->.')


if __name__ == '__main__':
    run_command(main)
