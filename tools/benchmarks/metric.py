"""Time and memory of CZSLMetric; both targets are ratios measured in the same run.

1. N = 3000 images, P = 3000 pairs: against the standard bias sweep over the full score matrix.
2. C-GQA open world (413 x 674 pairs): batches of 768-d features, features @ text.T, then the
   metric, against the bare matrix products; with and without the search for a threshold.

Usage: python tools/benchmarks/metric.py [--images 5000] [--batch 32] [--only matrix|open]
"""
import argparse
import resource
import sys
import time

import torch
from mmengine.logging import MMLogger
from torch.nn.functional import normalize

from mmcluspro.evaluation import CZSLMetric, Evaluation, standard_curve
from mmcluspro.evaluation.margins import reduce_scores

NUM_ATTRS, NUM_OBJS, NUM_SEEN, DIM = 413, 674, 5592, 768


def peak_memory() -> float:
    """Largest resident size of this process so far, in GB (ru_maxrss: kB, on macOS bytes)."""
    unit = 1 if sys.platform == 'darwin' else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def brute_force(scores, targets, seen, biases) -> float:
    """Standard AUC by adding every bias to the full matrix."""
    is_seen = seen[targets]
    points = []
    for bias in biases:
        right = (scores + bias * ~seen).argmax(1) == targets
        points.append([right[is_seen].float().mean(), right[~is_seen].float().mean()])
    seen_acc, unseen_acc = torch.tensor(points).double().T
    return 100 * float(torch.trapezoid(seen_acc, unseen_acc))


def best_time(function, repeats: int):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - start)
    return min(times), result


def compare_with_brute_force(num: int = 3000, num_pairs: int = 3000) -> None:
    scores = torch.randn(num, num_pairs)
    targets = torch.randint(num_pairs, (num, ))
    scores[torch.arange(num), targets] += 3
    seen = torch.rand(num_pairs) < 0.6
    margins = reduce_scores(scores, targets, seen)
    biases = standard_curve(margins.margin[:, 0, 0], margins.diff[:, 0], margins.is_seen).bias

    sweep_time, sweep_auc = best_time(
        lambda: brute_force(scores, targets, seen, biases.tolist()), 3)
    time_, numbers = best_time(lambda: CZSLMetric.calculate(scores, targets, seen), 10)
    print(f'matrix {num} x {num_pairs}: sweep over {len(biases)} biases {sweep_time:.3f} s '
          f'(auc {sweep_auc:.4f}), CZSLMetric.calculate {time_:.4f} s (auc {numbers["auc"]:.4f}, '
          f'all numbers): {sweep_time / time_:.0f}x (target 30x)')


def open_world(images: int, batch: int, threshold, start_memory: float) -> None:
    """Bare products and products + metric take turns, so that other load hits both."""
    # Positive, as the scores of Eq. 13, so that they have a logarithm.
    text = normalize_(torch.rand(NUM_ATTRS * NUM_OBJS, DIM))
    features = normalize_(torch.rand(images, DIM))
    labels = torch.randint(NUM_ATTRS * NUM_OBJS, (images, )).tolist()
    metric = CZSLMetric(world='open', threshold=threshold)
    metric.dataset_meta = dict(space=make_space(),
                               evaluation=Evaluation(rho=torch.rand(NUM_ATTRS, NUM_OBJS)))

    bare = full = 0.0
    for begin in range(0, images, batch):
        part = features[begin:begin + batch]
        start = time.perf_counter()
        scores = part @ text.T
        bare += time.perf_counter() - start
        del scores
        start = time.perf_counter()
        scores = part @ text.T
        samples = [
            dict(open_score=row, attr_label=label // NUM_OBJS, obj_label=label % NUM_OBJS)
            for row, label in zip(scores, labels[begin:begin + batch])
        ]
        metric.process(None, samples)
        full += time.perf_counter() - start
        del scores, samples
    start = time.perf_counter()
    metric.evaluate(images)
    full += time.perf_counter() - start
    print(f'open world {images} x {len(text)}, threshold {threshold}: products {bare:.1f} s, '
          f'products and metric {full:.1f} s: {full / bare:.2f}x (target 1.5x), peak memory '
          f'{peak_memory() - start_memory:.2f} GB above start, text features '
          f'{text.numel() * 4 / 1e9:.2f} GB of it (target 1.5 GB)')


def normalize_(rows):
    return normalize(rows, dim=1, out=rows)


def make_space() -> dict:
    """A space of the size of C-GQA's test phase, as a dataset would hand it over."""
    pairs = torch.randperm(NUM_ATTRS * NUM_OBJS)[:NUM_SEEN + 923]
    return dict(attributes=[f'a{i:03}' for i in range(NUM_ATTRS)],
                objects=[f'o{i:03}' for i in range(NUM_OBJS)],
                pairs=torch.stack([pairs // NUM_OBJS, pairs % NUM_OBJS], 1).tolist(),
                seen=[i < NUM_SEEN for i in range(len(pairs))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--images', type=int, default=5000)
    parser.add_argument('--batch', type=int, default=32)
    parser.add_argument('--only', choices=['matrix', 'open'])
    args = parser.parse_args()
    torch.manual_seed(0)
    MMLogger.get_instance('benchmark', log_level='ERROR')
    print(f'torch {torch.__version__}, {torch.get_num_threads()} threads')
    if args.only != 'matrix':  # first: peak memory never falls
        start_memory = peak_memory()
        open_world(args.images, args.batch, 0.5, start_memory)
        open_world(args.images, args.batch, 'search', start_memory)
    if args.only != 'open':
        compare_with_brute_force()


if __name__ == '__main__':
    main()
