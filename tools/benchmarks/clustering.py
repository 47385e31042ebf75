"""CPU time of the prototype assignment: against a loop over classes, and in a training step.

1. One call for all classes of a batch against the same solver called class by class, and against
   Algorithm 1 (every class of the vocabulary over the whole batch); ratios of the same run.
2. Share of features that the structure term (kappa) moves, at UT-Zappos' sizes.
3. Share of assignment and update (both branches) of a training step with an untrained ViT-B/32.

Features are drawn around K modes per class; classes follow 1/sqrt(rank). A queue fills the classes
of MIT-States and C-GQA, which otherwise have too few features in a batch to be solved at all.

Usage: python tools/benchmarks/clustering.py [--threads 1] [--only loop|kappa|step]
"""
import argparse
import time

import torch
from torch.nn.functional import normalize

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models.clustering import local_aware_assign
from mmcluspro.registry import MODELS

NUM_PROTOTYPES, DIM = 5, 768
# Name, attributes and objects, batch, queue.
SETTINGS = [
    ('UT-Zappos', (16, 12), 128, 0),
    ('MIT-States', (115, 245), 64, 16),
    ('C-GQA', (413, 674), 16, 16),
    ('C-GQA', (413, 674), 64, 16),
]


def make_branch(num_classes, batch, queue, generator):
    """Features, labels, prototypes and context of one branch."""
    def unit(*size):
        return normalize(torch.randn(*size, DIM, generator=generator), dim=-1)
    rank = torch.arange(1, num_classes + 1, dtype=torch.float32)
    labels = torch.multinomial(rank.rsqrt(), batch, replacement=True, generator=generator)
    modes = normalize(unit(num_classes, 1) + unit(num_classes, NUM_PROTOTYPES), dim=-1)

    def features_of(classes):
        mode = torch.randint(NUM_PROTOTYPES, classes.shape, generator=generator)
        return normalize(modes[classes, mode] + unit(len(classes)), dim=1)

    prototypes = normalize(modes + 0.3 * unit(num_classes, NUM_PROTOTYPES), dim=-1).flatten(0, 1)
    stored = labels.unique().repeat_interleave(queue)
    return features_of(labels), labels, prototypes, features_of(stored), stored


def at_once(features, labels, prototypes, context, stored, scope='class'):
    return local_aware_assign(features, labels, prototypes, NUM_PROTOTYPES, scope=scope,
                              context=context, context_labels=stored).rows


def class_by_class(features, labels, prototypes, context, stored):
    rows = torch.empty_like(labels)
    for c in labels.unique().tolist():
        own, kept = labels == c, stored == c
        table = prototypes[c * NUM_PROTOTYPES:(c + 1) * NUM_PROTOTYPES]
        rows[own] = c * NUM_PROTOTYPES + at_once(
            features[own], torch.zeros_like(labels[own]), table, context[kept],
            torch.zeros_like(stored[kept]))
    return rows


def algorithm_1(features, labels, prototypes, context, stored):
    """Every class of the vocabulary, over the whole batch."""
    everyone = torch.zeros_like(labels)
    for table in prototypes.split(NUM_PROTOTYPES):
        local_aware_assign(features, everyone, table, NUM_PROTOTYPES)


def seconds(function, *args, repeats=5):
    """Median CPU time of a call."""
    function(*args)
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function(*args)
        times.append(time.process_time() - start)
    return sorted(times)[len(times) // 2]


def measure_loops():
    print(f'{"":<12}{"classes":>9}{"batch":>7}{"queue":>7}{"solved":>8}{"at once":>10}'
          f'{"by class":>11}{"ratio":>7}{"Algorithm 1":>14}{"ratio":>7}')
    for name, sizes, batch, queue in SETTINGS:
        generator = torch.Generator().manual_seed(0)
        branches = [make_branch(size, batch, queue, generator) for size in sizes]
        for branch in branches:
            if not torch.equal(at_once(*branch), class_by_class(*branch)):
                raise RuntimeError('The loop over classes found other assignments.')
        solved = sum(len(branch[1].unique()) for branch in branches)
        once, loop = (sum(seconds(function, *branch) for branch in branches)
                      for function in (at_once, class_by_class))
        paper = sum(seconds(algorithm_1, *branch, repeats=1) for branch in branches)
        print(f'{name:<12}{sum(sizes):>9}{batch:>7}{queue:>7}{solved:>8}{1e3 * once:>8.1f}ms'
              f'{1e3 * loop:>9.0f}ms{loop / once:>7.1f}{1e3 * paper:>12.0f}ms{paper / once:>7.0f}')


def measure_kappa(repeats=10):
    """Features whose prototype differs from that of kappa = 0, and how the solver did."""
    print(f'\n{"temperature":>11}{"kappa":>7}{"moved":>8}{"steps":>7}{"converged":>11}')
    generator = torch.Generator().manual_seed(0)
    cases = [make_branch(16, 128, 0, generator)[:3] for _ in range(repeats)]
    for temperature in (1.0, 0.1):
        for kappa in (1.0, 10.0, 100.0):
            moved, steps, converged = [], [], []
            for case in cases:
                free, tied = (local_aware_assign(*case, NUM_PROTOTYPES, kappa=weight,
                                                 temperature=temperature)
                              for weight in (0.0, kappa))
                moved.append((free.rows != tied.rows).float())
                steps.append(tied.report.iterations.float())
                converged.append(tied.report.converged.float())
            print(f'{temperature:>11}{kappa:>7.0f}{float(torch.cat(moved).mean()):>8.1%}'
                  f'{float(torch.cat(steps).mean()):>7.1f}'
                  f'{float(torch.cat(converged).mean()):>11.0%}')


def build_model(sizes, num_pairs, arch, queue):
    attributes = [f'attribute{i}' for i in range(sizes[0])]
    objects = [f'object{i}' for i in range(sizes[1])]
    every = torch.cartesian_prod(torch.arange(sizes[0]), torch.arange(sizes[1]))
    picked = every[torch.linspace(0, len(every) - 1, num_pairs).long()]
    space = CompositionSpace.from_pairs(attributes, objects, picked,
                                        torch.ones(num_pairs, dtype=torch.bool))
    return MODELS.build(dict(
        type='mmcluspro.CompositionalClassifier',
        space=space.to_dict(),
        backbone=dict(type='mmcluspro.CLIPVision', arch=arch, pretrained=None,
                      peft=dict(type='mmcluspro.LoRA', rank=16, alpha=16)),
        neck=dict(type='mmcluspro.PrimitiveAdapter', in_channels=512),
        head=dict(type='mmcluspro.ClusProHead', in_channels=512, bank=dict(queue_size=queue),
                  text=dict(type='mmcluspro.CLIPText', arch=arch, pretrained=None))))


def measure_step(batch, repeats=3):
    from mmpretrain.structures import DataSample
    print(f'\n{"":<12}{"pairs":>7}{"batch":>7}{"step":>10}{"clustering":>12}{"share":>8}')
    for name, sizes, pairs, queue in [('UT-Zappos', (16, 12), 83, 0),
                                      ('MIT-States', (115, 245), 1262, 16)]:
        torch.manual_seed(0)
        model = build_model(sizes, pairs, 'ViT-B-32', queue).train()
        for branch, size in zip(('attr', 'obj'), sizes):
            model.head.bank(branch).initialise(torch.randn(20 * size, 512),
                                               torch.arange(20 * size) % size)
        spent = time_calls(model.head, '_observe', 'update_prototypes')
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4)
        images = torch.randn(batch, 3, 224, 224)
        labels = torch.randint(pairs, (batch, ))
        samples = []
        for pair in labels.tolist():
            attr, obj = model.head.space.pairs[pair].tolist()
            sample = DataSample().set_gt_label(pair)
            sample.set_field(attr, 'attr_label')
            sample.set_field(obj, 'obj_label')
            sample.set_field(pair, 'pair_label')
            samples.append(sample)

        train_step(model, optimizer, images, samples)
        spent.clear()
        start = time.process_time()
        for _ in range(repeats):
            train_step(model, optimizer, images, samples)
        total, clustering = time.process_time() - start, sum(spent)
        print(f'{name:<12}{pairs:>7}{batch:>7}{total / repeats:>9.2f}s'
              f'{1e3 * clustering / repeats:>10.1f}ms{clustering / total:>8.2%}')


def train_step(model, optimizer, images, samples):
    losses = model(images, samples, mode='loss')
    optimizer.zero_grad()
    sum(value for key, value in losses.items() if 'loss' in key).backward()
    optimizer.step()
    model.head.update_prototypes()


def time_calls(owner, *names):
    """Replaces methods by timed ones; the list that is returned gets their seconds."""
    spent = []

    def timed(method):
        def wrapper(*args, **kwargs):
            start = time.process_time()
            result = method(*args, **kwargs)
            spent.append(time.process_time() - start)
            return result
        return wrapper

    for name in names:
        setattr(owner, name, timed(getattr(owner, name)))
    return spent


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--only', choices=('loop', 'kappa', 'step'))
    parser.add_argument('--step-batch', type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.only in (None, 'loop'):
        measure_loops()
    if args.only in (None, 'kappa'):
        measure_kappa()
    if args.only in (None, 'step'):
        measure_step(args.step_batch)


if __name__ == '__main__':
    main()
