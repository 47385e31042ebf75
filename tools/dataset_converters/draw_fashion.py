#!/usr/bin/env python
"""Draws a version of the data set `Fashion`: near-duplicates out, then pairs and phases.

The published version comes with the package; this is how it was made, and how to make another:

    python tools/dataset_converters/draw_fashion.py ~/Downloads/archive my-fashion.txt \\
        --weights dinov2_vits14_pretrain.pth --seed my-fashion
    python tools/dataset_converters/prepare_fashion.py data/my-fashion \\
        --source ~/Downloads/archive --version my-fashion.txt

Photographs are linked when their DINOv2 features have a cosine of at least 0.99 (the same
photograph), or of at least 0.97 with the same colour and type (the same product, or one that
hardly differs; below 0.99 features of one product in two colours are as close). Of each linked
group one stays. The features are kept beside the version (--features): they take minutes.

Chance comes from SHA-256 of names and ids, so that a draw depends neither on the order of the file
nor on a library's generator.
"""
import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.datasets.fashion import Product, read_styles, write_version
from mmcluspro.datasets.splits import PHASES, Pair
from mmcluspro.datasets.splitting import hold_back, shuffled
from mmcluspro.engine.messages import run_command
from mmcluspro.models.backbones import DINOv2, ProjectedBackbone

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
SIDE = 112
BLOCK = 2048  # photographs that are compared with all others at once


@dataclass(frozen=True)
class Rule:
    """The rule of a draw.

    Args:
        seed (str): Another seed, another draw. Defaults to 'fashion-v1'.
        min_images (int): Pairs with fewer photographs are left out. Defaults to 5.
        max_images (int): Of a pair with more, this many are drawn. Defaults to 80.
        left_out (tuple[str, ...]): Colours that name no colour. Defaults to ('Multi',).
        unseen (float): Share of the pairs that is unseen, half of it in validation and half in
            the test. Defaults to 0.4.
        keep (float): Share of its pairs that each colour and type keeps seen, at least one.
            Defaults to 0.4.
        val (float): Share of a seen pair's photographs in validation. Defaults to 0.15.
        test (float): The same for the test. Defaults to 0.15.
    """
    seed: str = 'fashion-v1'
    min_images: int = 5
    max_images: int = 80
    left_out: tuple[str, ...] = ('Multi', )
    unseen: float = 0.4
    keep: float = 0.4
    val: float = 0.15
    test: float = 0.15


def draw_version(products: Iterable[Product], rule: Rule | None = None,
                 dropped: Collection[int] = ()) -> dict[str, list[Product]]:
    """Draws the three phases.

    Args:
        products (Iterable[Product]): What the table has, in any order.
        rule (Rule, optional): Defaults to None, that of fashion-v1.
        dropped (Collection[int]): Ids to leave out, such as near-duplicates. Defaults to ().

    Returns:
        dict[str, list[Product]]: Products of 'train', 'val' and 'test'.
    """
    rule = rule or Rule()
    images = choose_images([product for product in products if product.id not in dropped], rule)
    order: list[Pair] = shuffled(images, rule.seed)
    unseen = choose_unseen(order, rule)
    phases: dict[str, list[Product]] = {phase: [] for phase in PHASES}
    # By size and in turns, first and last of each four to one phase: the two become equally large.
    by_size = sorted(unseen, key=lambda pair: (-len(images[pair]), order.index(pair)))
    for turn, pair in enumerate(by_size):
        phases[('val', 'test', 'test', 'val')[turn % 4]] += images[pair]
    owed = {'val': 0.0, 'test': 0.0}
    hidden = set(unseen)
    for pair in order:
        if pair not in hidden:
            number = len(images[pair])
            taken = hold_back(number, {'val': rule.val, 'test': rule.test}, owed)
            marks = ['val'] * taken['val'] + ['test'] * taken['test']
            for product, phase in zip(images[pair], marks + ['train'] * (number - len(marks))):
                phases[phase].append(product)
    return phases


def choose_images(products: Iterable[Product], rule: Rule) -> dict[Pair, list[Product]]:
    """The photographs of each pair that has enough of them, in a drawn order."""
    by_pair: dict[Pair, dict[str, Product]] = defaultdict(dict)
    for product in products:
        if product.attribute not in rule.left_out:
            by_pair[product.attribute, product.object][str(product.id)] = product
    return {pair: [found[number] for number, in shuffled(((number, ) for number in found),
                                                         rule.seed)][:rule.max_images]
            for pair, found in by_pair.items() if len(found) >= rule.min_images}


def choose_unseen(order: Sequence[Pair], rule: Rule) -> list[Pair]:
    """The first pairs of an order of which each primitive keeps enough others."""
    def names(pair: Pair) -> tuple[Pair, Pair]:
        return ('attribute', pair[0]), ('object', pair[1])

    seen = Counter(name for pair in order for name in names(pair))
    least = {name: max(1, math.ceil(rule.keep * number)) for name, number in seen.items()}
    unseen: list[Pair] = []
    for pair in order:
        if len(unseen) == round(rule.unseen * len(order)):
            break
        if all(seen[name] > least[name] for name in names(pair)):
            seen.subtract(names(pair))
            unseen.append(pair)
    return unseen


def near_pairs(features: Tensor, threshold: float) -> list[tuple[int, int]]:
    """Rows i < j whose cosine is at least ``threshold``.

    Args:
        features (Tensor): One row per photograph, shape (N, D).
        threshold (float): Cosine.
    """
    unit = F.normalize(features.float(), dim=1)
    found = []
    for start in range(0, len(unit), BLOCK):
        close = unit[start:start + BLOCK] @ unit.T >= threshold
        rows, columns = close.nonzero(as_tuple=True)
        rows = rows + start
        found += torch.stack([rows, columns], dim=1)[rows < columns].tolist()
    return [(first, second) for first, second in found]


def groups_of(pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Connected groups of rows, each sorted, in the order of their first rows."""
    root: dict[int, int] = {}

    def find(row: int) -> int:
        while root.setdefault(row, row) != row:
            root[row] = row = root[root[row]]
        return row

    for pair in pairs:
        first, second = sorted(map(find, pair))
        root[second] = first
    groups: dict[int, list[int]] = {}
    for row in sorted(root):
        groups.setdefault(find(row), []).append(row)
    return sorted(groups.values())


def read_image(path: Path) -> Tensor | None:
    """A photograph, normalised, shape (3, 112, 112); None when it cannot be read."""
    try:
        with Image.open(path) as image:
            pixels = np.array(image.convert('RGB').resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    except OSError:
        return None
    return torch.from_numpy((pixels - MEAN) / STD).permute(2, 0, 1).float()


@torch.inference_mode()
def encode(products: list[Product], folder: Path, weights: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids (N,) of the photographs that can be read, and their features (N, D)."""
    tower = DINOv2(pretrained=weights)
    tower.eval()
    ids: list[int] = []
    features: list[Tensor] = []
    for start in range(0, len(products), 64):
        found = [(product.id, image) for product in products[start:start + 64]
                 if (image := read_image(folder / f'{product.id}.jpg')) is not None]
        if found:
            tokens = tower(torch.stack([image for _, image in found]))[-1]
            features.append(ProjectedBackbone.pooled(tokens, 'cls_avg', 'DINOv2'))
            ids += [number for number, _ in found]
        if start % 1024 == 0:
            print(f'{start}/{len(products)}', flush=True)
    return np.array(ids), torch.cat(features).numpy()


def near_duplicates(products: list[Product], features: Tensor, threshold: float,
                    same_photograph: float) -> list[list[int]]:
    """Groups of ids; the first stays: the lowest one of the label that is most frequent."""
    links = near_pairs(features, same_photograph)
    links += [(i, j) for i, j in near_pairs(features, threshold)
              if products[i][1:3] == products[j][1:3]]
    ordered = []
    for rows in groups_of(links):
        group = [products[row] for row in rows]
        votes = Counter(product[1:3] for product in group)
        group.sort(key=lambda product: (-votes[product[1:3]], product.id))
        ordered.append([product.id for product in group])
    return sorted(ordered)


def report(phases: dict[str, list[Product]], groups: list[list[int]]) -> None:
    """Prints what was drawn."""
    seen = {product[1:3] for product in phases['train']}
    print(f'{len(groups)} groups of near-duplicates, {sum(map(len, groups)) - len(groups)} dropped')
    for phase in PHASES:
        pairs = {product[1:3] for product in phases[phase]}
        print(f'{phase}: {len(phases[phase])} photographs, {len(pairs & seen)} seen pairs, '
              f'{len(pairs - seen)} unseen pairs, '
              f'{sum(product[1:3] not in seen for product in phases[phase])} photographs of them')


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('source', type=Path, help='folder with styles.csv and images/')
    parser.add_argument('out', type=Path, help='version file to write, ending in .txt')
    parser.add_argument('--weights', help="DINOv2's dinov2_vits14_pretrain.pth")
    parser.add_argument('--features', type=Path,
                        help='file of the features (default: OUT with the ending .npz)')
    parser.add_argument('--threshold', type=float, default=0.97,
                        help='cosine of near-duplicates with the same label (default: 0.97)')
    parser.add_argument('--same-photograph', type=float, default=0.99,
                        help='cosine of near-duplicates with any labels (default: 0.99)')
    parser.add_argument('--seed', default=Rule.seed, help=f'of the draw (default: {Rule.seed})')
    args = parser.parse_args(argv)
    if args.out.suffix != '.txt':
        parser.error('the version file must end in .txt.')
    rule = replace(Rule(), seed=args.seed)
    products, _ = read_styles(args.source / 'styles.csv')
    products = sorted(product for product in products if product.attribute not in rule.left_out)
    cache = args.features or args.out.with_suffix('.npz')
    if not cache.is_file():
        if args.weights is None:
            parser.error(f'{cache} does not exist: give --weights to compute the features.')
        ids, features = encode(products, args.source / 'images', args.weights)
        np.savez(cache, ids=ids, features=features)
    with np.load(cache, allow_pickle=False) as arrays:
        ids, features = arrays['ids'], arrays['features']
    rows = {int(number): row for row, number in enumerate(ids)}
    products = [product for product in products if product.id in rows]  # the others: unreadable
    stored = torch.from_numpy(features[[rows[product.id] for product in products]])
    groups = near_duplicates(products, stored, args.threshold, args.same_photograph)
    dropped = {number for group in groups for number in group[1:]}
    phases = draw_version(products, rule, dropped)
    write_version(args.out, phases, f'{args.out.stem}: drawn by draw_fashion.py --seed '
                  f'{args.seed} --threshold {args.threshold} --same-photograph '
                  f'{args.same_photograph}\nphase attribute object id id …', groups)
    report(phases, groups)
    return 0


if __name__ == '__main__':
    run_command(lambda: sys.exit(main()))
