"""Do prototypes find the hidden modes of Shapes? NMI beside k-means on the same features.

    python tools/analysis_tools/modes.py work_dirs/baseline_shapes/best_*.pth \
        work_dirs/cluspro_shapes/best_*.pth --out modes.json

For each checkpoint, over its training images: k-means with K clusters inside each attribute and
object, and, where there are prototypes, the nearest of them. Without --clusters, K is that of the
first checkpoint that has prototypes, or 5.

    python tools/analysis_tools/modes.py --table docs/results/modes

prints mean and standard deviation over the files of a folder, one a seed.
"""
import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.dataset import default_collate
from torch import Tensor
from torch.utils.data import DataLoader

from mmcluspro.analysis import mean_and_std
from mmcluspro.analysis.modes import kmeans_clusters, mode_agreement, nearest_clusters
from mmcluspro.apis import load_model
from mmcluspro.engine.hooks.prototype_hook import extract
from mmcluspro.engine.launch import run_command
from mmcluspro.registry import DATASETS

BRANCHES = ('attr', 'obj')


def training_set(model: Any) -> Any:
    """The training images of a checkpoint, without augmentation."""
    cfg = model.cfg
    dataset = DATASETS.build(dict(
        cfg.train_dataloader.dataset, pipeline=cfg.val_dataloader.dataset.pipeline))
    if 'attr_mode' not in dataset.get_data_info(0):
        raise ValueError(f'{type(dataset).__name__} has no hidden modes: only ShapesCZSL knows '
                         'them. Give checkpoints that were trained on Shapes.')
    return dataset


def measure(model: Any, num_clusters: int) -> dict[str, float]:
    """Agreement of k-means and of prototypes with the modes, by branch."""
    dataset = training_set(model)
    loader = DataLoader(dataset, batch_size=256, collate_fn=default_collate)
    features, labels = extract(model, loader, np.arange(len(dataset)))
    rows: dict[str, float] = {}
    for branch in BRANCHES:
        modes = torch.tensor([dataset.get_data_info(i)[f'{branch}_mode']
                              for i in range(len(dataset))])
        label: Tensor = labels[branch]
        sizes = torch.full((int(label.max()) + 1, ), num_clusters)
        rows[f'{branch}_kmeans'] = mode_agreement(
            kmeans_clusters(features[branch], label, sizes), modes, label)
        rows[f'{branch}_chance'] = mode_agreement(
            kmeans_clusters(features[branch], label, sizes),
            modes[torch.randperm(len(modes), generator=torch.Generator().manual_seed(0))], label)
        if branch in getattr(model.head, 'banks', {}):
            bank = model.head.bank(branch)
            rows[f'{branch}_prototypes'] = mode_agreement(
                nearest_clusters(features[branch], label, bank.prototypes, bank.offsets),
                modes, label)
    return rows


def print_table(folder: Path) -> None:
    """Mean ± standard deviation over the seeds, by kind of run."""
    values: dict[tuple[str, str], list[float]] = {}
    files = sorted(folder.glob('*.json'))
    if not files:
        raise FileNotFoundError(f'There are no results (*.json) in {folder}.')
    for path in files:
        for checkpoint, rows in json.loads(path.read_text()).items():
            run = Path(checkpoint).parent.name.rsplit('_seed', 1)[0]
            for key, value in rows.items():
                values.setdefault((run, key), []).append(value)
    print('| run | clusters | attributes | objects | seeds |\n|---|---|---|---|---|')
    for run in dict.fromkeys(run for run, _ in values):
        for kind in ('kmeans', 'prototypes', 'chance'):
            found = [values.get((run, f'{branch}_{kind}')) for branch in BRANCHES]
            if all(found):
                cells = [f'{mean:.3f} ± {spread or 0:.3f}'
                         for mean, spread in (mean_and_std(part) for part in found if part)]
                print(f'| {run} | {kind} | {" | ".join(cells)} | {len(found[0] or ())} |')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('checkpoints', nargs='*')
    parser.add_argument('--table', type=Path, metavar='FOLDER', help='print the table of a folder')
    parser.add_argument('--clusters', type=int, help='K of k-means')
    parser.add_argument('--out', type=Path, help='JSON file for the numbers')
    args = parser.parse_args()
    if args.table:
        return print_table(args.table)
    if not args.checkpoints:
        parser.error('give checkpoints, or --table FOLDER.')
    models = {path: load_model(path) for path in args.checkpoints}
    sizes = [int(model.head.bank(branch).sizes.max()) for model in models.values()
             for branch in getattr(model.head, 'banks', {})]
    results = {path: measure(model, args.clusters or (sizes or [5])[0])
               for path, model in models.items()}
    print('| checkpoint | branch | k-means | prototypes | chance |\n|---|---|---|---|---|')
    for path, rows in results.items():
        for branch in BRANCHES:
            found = rows.get(f'{branch}_prototypes')
            print(f'| {path} | {branch} | {rows[f"{branch}_kmeans"]:.3f} | '
                  f'{"–" if found is None else f"{found:.3f}"} | {rows[f"{branch}_chance"]:.3f} |')
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(results, indent=1) + '\n')


if __name__ == '__main__':
    run_command(main)
