"""What do prototypes stand for? NMI with the other primitive, and with the hidden modes of Shapes.

    python tools/analysis_tools/modes.py work_dirs/baseline_shapes/best_*.pth \
        work_dirs/cluspro_shapes/best_*.pth --out modes.jsonl

For each checkpoint, over its training images: k-means with K clusters inside each attribute and
object, and, where there are prototypes, the nearest of them. Without --clusters, K is that of the
first checkpoint that has prototypes, or 5. A cluster that agrees with the mode can do so through
the other primitive, on which the mode depends: the row "the mode itself" says how far that goes.
Datasets other than Shapes have no hidden modes; for them only the other primitive is compared.

    python tools/analysis_tools/modes.py --table docs/results/modes.jsonl

prints mean and standard deviation over the seeds in a file that --out wrote.
"""
import argparse
import json
from pathlib import Path

import numpy as np
import torch
from mmengine.dataset import default_collate
from torch import Tensor
from torch.utils.data import DataLoader

from experiments import mean_and_std
from experiments.mode_agreement import kmeans_clusters, mode_agreement, nearest_clusters
from experiments.run_store import read_lines
from mmcluspro import TrainedModel, load
from mmcluspro.engine.features import cluster_features
from mmcluspro.engine.messages import run_command

BRANCHES = ('attr', 'obj')
COLUMNS = [(branch, target) for branch in BRANCHES for target in ('mode', 'partner')]
CLUSTERS = dict(kmeans='k-means', prototypes='nearest prototype', chance='k-means, shuffled',
                mode='the mode itself')


def measure(trained: TrainedModel, num_clusters: int) -> dict[str, float]:
    """Agreement of clusters with the modes and with the other primitive.

    Args:
        trained (TrainedModel): The model.
        num_clusters (int): K of k-means.

    Returns:
        dict[str, float]: NMI by ``<branch>_<clusters>_<target>``: branch attr or obj, clusters of
        ``CLUSTERS``, target mode (where the dataset knows it) or partner.
    """
    dataset = trained.dataset('train')  # without augmentation
    loader = DataLoader(dataset, batch_size=256, collate_fn=default_collate)
    head = trained.network.head
    features, labels = cluster_features(
        trained.network, loader, np.arange(len(dataset)), lambda feats, samples: {
            branch: (feats.primitives[branch], head.labels(samples)[branch])
            for branch in BRANCHES})
    samples = [dataset.get_data_info(i) for i in range(len(dataset))]
    shuffle = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))
    rows: dict[str, float] = {}
    for branch, other in zip(BRANCHES, BRANCHES[::-1]):
        label: Tensor = labels[branch]
        targets = dict(partner=labels[other])
        if f'{branch}_mode' in samples[0]:
            targets['mode'] = torch.tensor([sample[f'{branch}_mode'] for sample in samples])
        sizes = torch.full((int(label.max()) + 1, ), num_clusters)
        clusters = dict(kmeans=kmeans_clusters(features[branch], label, sizes))
        bank = trained.network.head.clustered.get(branch)
        if bank is not None:
            clusters['prototypes'] = nearest_clusters(
                features[branch], label, bank.prototypes, bank.offsets)
        for target, values in targets.items():
            for name, found in clusters.items():
                rows[f'{branch}_{name}_{target}'] = mode_agreement(found, values, label)
            rows[f'{branch}_chance_{target}'] = mode_agreement(
                clusters['kmeans'], values[shuffle], label)
        if 'mode' in targets:
            rows[f'{branch}_mode_partner'] = mode_agreement(
                targets['mode'], targets['partner'], label)
    return rows


def print_rows(runs: dict[str, list[dict[str, float]]]) -> None:
    """Mean ± standard deviation over the checkpoints of each run."""
    print('| run | clusters | attributes: mode | attributes: object | objects: mode | '
          'objects: attribute | runs |\n|---|---|---|---|---|---|---|')
    for run, files in runs.items():
        for name in CLUSTERS:
            cells = []
            for branch, target in COLUMNS:
                values = [rows[key] for rows in files
                          if (key := f'{branch}_{name}_{target}') in rows]
                cells.append(_cell(values))
            if any(cell != '–' for cell in cells):
                print(f'| {run} | {CLUSTERS[name]} | {" | ".join(cells)} | {len(files)} |')


def _cell(values: list[float]) -> str:
    if not values:
        return '–'
    mean, spread = mean_and_std(values)
    return f'{mean:.3f}' if spread is None else f'{mean:.3f} ± {spread:.3f}'


def read_file(file: Path) -> dict[str, list[dict[str, float]]]:
    """Numbers by run, without its seed."""
    runs: dict[str, list[dict[str, float]]] = {}
    for line in read_lines(file):
        name = Path(line['checkpoint']).parent.name.rsplit('_seed', 1)[0]
        runs.setdefault(name, []).append(line['agreement'])
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('checkpoints', nargs='*')
    parser.add_argument('--table', type=Path, metavar='FILE',
                        help='print the table of a file that --out wrote')
    parser.add_argument('--config', help='of the checkpoints, where towers or features come from '
                        'local files')
    parser.add_argument('--clusters', type=int, help='K of k-means')
    parser.add_argument('--out', type=Path, help='JSON-lines file that the numbers are added to')
    args = parser.parse_args()
    if args.table:
        return print_rows(read_file(args.table))
    if not args.checkpoints:
        parser.error('give checkpoints, or --table FILE.')
    models = {path: load(path, config=args.config) for path in args.checkpoints}
    sizes = [int(bank.sizes.max()) for model in models.values()
             for bank in model.network.head.clustered.values()]
    results = {path: measure(model, args.clusters or (sizes or [5])[0])
               for path, model in models.items()}
    print_rows({path: [rows] for path, rows in results.items()})
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with args.out.open('a', encoding='utf-8') as file:
            for path, rows in results.items():
                file.write(json.dumps(dict(checkpoint=path, agreement=rows)) + '\n')


if __name__ == '__main__':
    run_command(main)
