"""Measures the HSIC estimators of Eq. 11 on synthetic features, to choose the default.

    python tools/benchmarks/hsic.py

Prints three tables: what an estimator reads on independent features, how well it tells a leak from
none, and what its gradient does to features that have nothing to unlearn.
"""
import argparse

import torch
from torch.nn.functional import cross_entropy, normalize

from mmcluspro.models.losses import hsic

FORMS = [('biased', False), ('biased', True), ('unbiased', False), ('unbiased', True)]


def make_batch(num, dim, leak, generator, num_attrs=16, num_objs=12):
    """Attribute features that carry ``leak`` parts of the object, and object prototypes."""
    def unit(*size):
        return normalize(torch.randn(*size, dim, generator=generator), dim=-1)
    attrs = torch.randint(num_attrs, (num, ), generator=generator)
    objs = torch.randint(num_objs, (num, ), generator=generator)
    prototypes = unit(num_objs)
    features = unit(num_attrs)[attrs] + leak * unit(num_objs)[objs] + unit(num)
    return normalize(features, dim=1), prototypes[objs]


def reading(name, values):
    print(f'  {name:<22}' + ''.join(f'{value:>12.4g}' for value in values))


def title(text, columns):
    print(f'\n{text}\n  {"":<22}' + ''.join(f'{column:>12}' for column in columns))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--dim', type=int, default=768)
    parser.add_argument('--repeats', type=int, default=20)
    args = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    sizes = (16, 64, 256)

    def random_pair(num):
        return [normalize(torch.randn(num, args.dim, generator=generator), dim=1)
                for _ in range(2)]

    title('Independent unit vectors, mean reading at n =', sizes)
    pairs = {n: [random_pair(n) for _ in range(args.repeats)] for n in sizes}
    for form in FORMS:
        reading(label(form), [mean(hsic(x, y, *form) for x, y in pairs[n]) for n in sizes])

    leaks = (0.0, 0.25, 0.5, 1.0)
    title('Attribute features against object prototypes, n = 64, reading at leak =',
          [*leaks, 'SNR(0.25)'])
    batches = {leak: [make_batch(64, args.dim, leak, generator) for _ in range(4 * args.repeats)]
               for leak in leaks}
    for form in FORMS:
        values = {leak: torch.stack([hsic(x, y, *form) for x, y in batches[leak]])
                  for leak in leaks}
        snr = (values[0.25].mean() - values[0.0].mean()) / values[0.0].std()
        reading(label(form), [*(values[leak].mean() for leak in leaks), snr])

    title('Gradient on the features without a leak, n = 64',
          ['norm', 'systematic', 'contraction', 'beta=.5/CE'])
    for form in FORMS:
        reading(label(form), gradient_facts(form, args, generator))


def label(form):
    return ('normalized ' if form[1] else '') + form[0]


def mean(values):
    return torch.stack(list(values)).mean()


def gradient_facts(form, args, generator):
    """Norm; share of it that survives averaging over partners; cosine to pure contraction;
    ratio of beta = 0.5 times the norm to that of a cross-entropy at CLIP's temperature.
    """
    features, _ = make_batch(64, args.dim, 0.0, generator)
    gradients = []
    for _ in range(4 * args.repeats):
        objs = torch.randint(12, (64, ), generator=generator)
        partner = normalize(torch.randn(12, args.dim, generator=generator), dim=1)[objs]
        leaf = features.clone().requires_grad_()
        gradients.append(torch.autograd.grad(hsic(leaf, partner, *form), leaf)[0])
    stacked = torch.stack(gradients)
    average = stacked.mean(dim=0)
    contraction = features - features.mean(dim=0)
    cosine = (average * contraction).sum() / (average.norm() * contraction.norm())
    norm = stacked.flatten(1).norm(dim=1).mean()
    leaf = features.clone().requires_grad_()
    classes = normalize(torch.randn(16, args.dim, generator=generator), dim=1)
    targets = torch.randint(16, (64, ), generator=generator)
    loss = cross_entropy(leaf @ classes.T / 0.01, targets)
    baseline = torch.autograd.grad(loss, leaf)[0].norm()
    return norm, average.norm() / norm, cosine, 0.5 * norm / baseline


if __name__ == '__main__':
    main()
