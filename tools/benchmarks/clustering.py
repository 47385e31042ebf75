"""Time of the prototype assignment, as ratios of the same run: CPU seconds on one thread.

solver  Assignment of both branches, all classes at once, against the loop of the released code:
        every class of the vocabulary over the whole batch, conditional gradient with
        Sinkhorn's iterations. With the default queue every class is a real transport problem.
kappa   Share of features that the structure term moves, at UT-Zappos' sizes.
step    Share of assignment and update in a training step with an untrained ViT-B/32.

Features are drawn around K modes per class; classes follow 1/sqrt(rank).

Usage: python tools/benchmarks/clustering.py [--threads 1] [--only solver|kappa|step]
"""
import argparse
import time

import torch
from mmpretrain.structures import DataSample
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models.prototypes import (
    PrototypeBank,
    assign_together,
    local_aware_assign,
    update_together,
)
from mmcluspro.registry import MODELS

NUM_PROTOTYPES, DIM = 5, 768
# Attributes, objects and the batch of the shipped config.
SIZES = {'UT-Zappos': (16, 12, 128), 'MIT-States': (115, 245, 64), 'C-GQA': (413, 674, 16)}
RELEASED = dict(kappa=2.0, epsilon=0.1)


class Calls(TorchDispatchMode):
    """Counts ATen calls."""

    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += 1
        return func(*args, **(kwargs or {}))


def make_branch(num_classes, batch, generator):
    """Features and labels of a batch, and twenty features per class to start a bank from."""
    def unit(*size):
        return normalize(torch.randn(*size, DIM, generator=generator), dim=-1)
    modes = normalize(unit(num_classes, 1) + unit(num_classes, NUM_PROTOTYPES), dim=-1)

    def features_of(classes):
        mode = torch.randint(NUM_PROTOTYPES, classes.shape, generator=generator)
        return normalize(modes[classes, mode] + unit(len(classes)), dim=1)

    rank = torch.arange(1, num_classes + 1, dtype=torch.float32)
    labels = torch.multinomial(rank.rsqrt(), batch, replacement=True, generator=generator)
    stored = torch.arange(num_classes).repeat(20)
    return features_of(labels), labels, features_of(stored), stored


def make_banks(branches, **options):
    banks = []
    for _, _, features, labels in branches:
        bank = PrototypeBank(int(labels.max()) + 1, DIM, NUM_PROTOTYPES, **options)
        bank.initialise(features, labels)
        banks.append(bank)
    return banks


def released_loop(features, labels, prototypes, kappa, epsilon, outer=10, inner=100):
    """Assignment class by class over the whole batch, in the way of the released code.

    Structure-aware transport in float64 by generalised conditional gradient: linearise, 100
    iterations of Sinkhorn, a line search (nearly the whole step first), at most ten times and
    until the objective changes by less than 1e-6.
    """
    features, prototypes = features.double(), prototypes.double()
    similarity = features @ features.T
    num = len(features)
    rows = torch.empty_like(labels)
    for c, table in enumerate(prototypes.split(NUM_PROTOTYPES)):
        cost = -torch.log_softmax(features @ table.T, dim=1)
        q = torch.exp(-cost)

        def objective(plan, cost=cost, q=q):
            weighted = q * plan
            return ((cost * plan).sum() + epsilon * torch.xlogy(plan, plan).sum() -
                    kappa * (similarity * (weighted @ weighted.T)).sum())

        plan = torch.full_like(cost, 1 / cost.numel())
        value = objective(plan)
        for _ in range(outer):
            linear = cost - 2 * kappa * (similarity @ (q * plan)) * q
            kernel = torch.exp(-linear / epsilon)
            v = torch.ones_like(kernel[0])
            for _ in range(inner):
                u = 1 / num / (kernel @ v)
                v = 1 / NUM_PROTOTYPES / (kernel.T @ u)
            direction = u[:, None] * kernel * v - plan
            size = 0.99
            while (new := objective(plan + size * direction)) > value + 1e-6 and size > 1e-3:
                size /= 2
            plan, change, value = plan + size * direction, (value - new).abs(), new
            if change < 1e-6:
                break
        own = labels == c
        rows[own] = c * NUM_PROTOTYPES + plan[own].argmax(dim=1)
    return rows


def seconds(function, *args, repeats=7):
    """Least CPU time of a call: what a busy machine adds is not ours."""
    function(*args)
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function(*args)
        times.append(time.process_time() - start)
    return min(times)


def measure_solver():
    print(f'{"":<12}{"classes":>8}{"batch":>7}{"released":>11}{"default":>9}{"ratio":>7}'
          f'{"transport":>11}{"batch scope":>13}{"ratio":>7}{"equal":>8}{"calls a step":>14}')
    for name, (*sizes, batch) in SIZES.items():
        generator = torch.Generator().manual_seed(0)
        branches = [make_branch(size, batch, generator) for size in sizes]
        features, labels = [each[0] for each in branches], [each[1] for each in branches]
        default = make_banks(branches)
        whole = make_banks(branches, queue_size=0, assigner=dict(
            type='mmcluspro.LocalAwareOT', scope='batch', **RELEASED))
        once = seconds(assign_together, default, features, labels)
        same = seconds(assign_together, whole, features, labels)
        tables = [bank.prototypes for bank in whole]
        loops = [(each[0], each[1], table, *RELEASED.values())
                 for each, table in zip(branches, tables)]
        loop = sum(seconds(released_loop, *each, repeats=3) for each in loops)
        found = torch.cat(assign_together(whole, features, labels))
        wanted = torch.cat([released_loop(*each) for each in loops])
        share = sum(int(bank.transported) for bank in default) / sum(
            int(bank.assigned) for bank in default)
        with Calls() as calls:
            update_together(default, features, labels,
                            assign_together(default, features, labels))
        print(f'{name:<12}{sum(sizes):>8}{batch:>7}{1e3 * loop:>9.0f}ms{1e3 * once:>7.1f}ms'
              f'{loop / once:>6.0f}x{share:>11.2f}{1e3 * same:>11.1f}ms{loop / same:>6.0f}x'
              f'{float((found == wanted).float().mean()):>8.3f}{calls.number:>14}')


def measure_kappa(repeats=10):
    """Features whose prototype differs from that of kappa = 0, and how the solver did."""
    print(f'\n{"temperature":>11}{"kappa":>7}{"moved":>8}{"steps":>7}{"converged":>11}')
    generator = torch.Generator().manual_seed(0)
    cases = []
    for _ in range(repeats):
        branch = make_branch(16, 128, generator)
        cases.append((*branch[:2], make_banks([branch], queue_size=0)[0].prototypes))
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


def build_model(sizes, num_pairs, arch='ViT-B-32'):
    attributes = [f'attribute{i}' for i in range(sizes[0])]
    objects = [f'object{i}' for i in range(sizes[1])]
    every = torch.cartesian_prod(torch.arange(sizes[0]), torch.arange(sizes[1]))
    picked = every[torch.linspace(0, len(every) - 1, num_pairs).long()]
    space = CompositionSpace.from_pairs(attributes, objects, picked,
                                        torch.ones(num_pairs, dtype=torch.bool))
    model = MODELS.build(dict(
        type='mmcluspro.CompositionalClassifier',
        space=space.to_dict(),
        backbone=dict(type='mmcluspro.CLIPVision', arch=arch, pretrained=None,
                      peft=dict(type='mmcluspro.LoRA', rank=16, alpha=16)),
        neck=dict(type='mmcluspro.PrimitiveAdapter', in_channels=512),
        head=dict(type='mmcluspro.ClusProHead', in_channels=512,
                  text=dict(type='mmcluspro.CLIPText', arch=arch, pretrained=None)))).train()
    for branch, size in zip(('attr', 'obj'), sizes):
        model.head.bank(branch).initialise(torch.randn(20 * size, 512),
                                           torch.arange(20 * size) % size)
    return model


def measure_step(batch, repeats=2):
    print(f'\n{"":<12}{"pairs":>7}{"batch":>7}{"step":>10}{"clustering":>12}{"share":>8}')
    for name, pairs in (('UT-Zappos', 83), ('MIT-States', 1262)):
        torch.manual_seed(0)
        model = build_model(SIZES[name][:2], pairs)
        spent = time_calls(model.head, '_observe', 'update_prototypes')
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4)
        images = torch.randn(batch, 3, 224, 224)
        samples = []
        for pair in torch.randint(pairs, (batch, )).tolist():
            attr, obj = model.head.space.pairs[pair].tolist()
            sample = DataSample().set_gt_label(pair)
            for key, value in (('attr', attr), ('obj', obj), ('pair', pair)):
                sample.set_field(value, f'{key}_label')
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--only', choices=('solver', 'kappa', 'step'))
    parser.add_argument('--step-batch', type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.only in (None, 'solver'):
        measure_solver()
    if args.only in (None, 'kappa'):
        measure_kappa()
    if args.only in (None, 'step'):
        measure_step(args.step_batch)


if __name__ == '__main__':
    main()
