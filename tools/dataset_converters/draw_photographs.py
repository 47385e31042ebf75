#!/usr/bin/env python
"""Draws a split of real photographs: near-duplicates are found, then pairs and phases drawn.

The published splits come with the package; this is how they were made, and how to make others:

    python tools/dataset_converters/draw_photographs.py fashion ~/Downloads/archive \\
        my-fashion.txt --weights dinov2_vits14_pretrain.pth --seed my-fashion
    python tools/dataset_converters/prepare_photographs.py fashion data/my-fashion \\
        --source ~/Downloads/archive --version my-fashion.txt

Photographs are linked when their DINOv2 features have a cosine of at least --same-photograph, or of
at least --threshold with the same pair, or when their names say that they show one leaf. In Fashion
one of each linked group stays (below 0.99 features of one product in two colours are as close as
those of one product twice); in the other sets all stay, in the same phase. The features are kept
beside the split (--features): they take minutes.

Chance comes from SHA-256 of names and ids, so that a draw depends neither on the order of the files
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
from prepare_photographs import KINDS
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.datasets.layout import PHASES, Pair
from mmcluspro.datasets.photographs import Photograph, write_version
from mmcluspro.datasets.splitting import hold_back, make_split, shuffled
from mmcluspro.datasets.table_file import TableRow
from mmcluspro.engine.messages import run_command
from mmcluspro.models.backbones import DINOv2, ProjectedBackbone

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
BLOCK = 2048  # photographs that are compared with all others at once


@dataclass(frozen=True)
class Rule:
    """The rule of a draw.

    Args:
        seed (str): Another seed, another draw. Defaults to 'fashion-v1'.
        min_images (int): Pairs with fewer photographs are left out. Defaults to 5.
        max_images (int): Of a pair with more, this many are drawn. Defaults to 80.
        left_out (tuple[str, ...]): Attributes that name none. Defaults to ('Multi',).
        unseen (float): Share of the pairs that is unseen, half of it in validation and half in
            the test. Defaults to 0.4.
        keep (float): Share of its pairs that each attribute and object keeps seen, at least one.
            Defaults to 0.4.
        val (float): Share of a seen pair's photographs in validation. Defaults to 0.15.
        test (float): The same for the test. Defaults to 0.15.
        together (bool): Keep near-duplicates, in one phase. Defaults to False: one of them stays.
        threshold (float): Cosine of near-duplicates with the same pair. Defaults to 0.97.
        same_photograph (float): Cosine of near-duplicates with any pairs. Defaults to 0.99.
        side (int): Pixels of the photographs that are compared. Defaults to 112.
    """
    seed: str = 'fashion-v1'
    min_images: int = 5
    max_images: int = 80
    left_out: tuple[str, ...] = ('Multi', )
    unseen: float = 0.4
    keep: float = 0.4
    val: float = 0.15
    test: float = 0.15
    together: bool = False
    threshold: float = 0.97
    same_photograph: float = 0.99
    side: int = 112


RULES = {
    'fashion': Rule(),
    'plantvillage': Rule(seed='plantvillage-v1', max_images=100, left_out=(), together=True,
                         threshold=0.94, side=224),
    'grocery': Rule(seed='grocery-v1', max_images=200, left_out=(), together=True, threshold=0.95,
                    side=224)}


def draw_version(photos: Iterable[Photograph], rule: Rule | None = None,
                 dropped: Collection[str] = ()) -> dict[str, list[Photograph]]:
    """Draws the three phases of Fashion.

    Args:
        photos (Iterable[Photograph]): What the table has, in any order.
        rule (Rule, optional): Defaults to None, that of fashion-v1.
        dropped (Collection[str]): Ids to leave out, such as near-duplicates. Defaults to ().

    Returns:
        dict[str, list[Photograph]]: Photographs of 'train', 'val' and 'test'.
    """
    rule = rule or Rule()
    images = choose_images([photo for photo in photos if photo.id not in dropped], rule)
    order: list[Pair] = shuffled(images, rule.seed)
    unseen = choose_unseen(order, rule)
    phases: dict[str, list[Photograph]] = {phase: [] for phase in PHASES}
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
            for photo, phase in zip(images[pair], marks + ['train'] * (number - len(marks))):
                phases[phase].append(photo)
    return phases


def draw_together(photos: Iterable[Photograph], rule: Rule,
                  groups: Iterable[Sequence[str]] = ()) -> dict[str, list[Photograph]]:
    """Draws the three phases so that no group is in two of them.

    Args:
        photos (Iterable[Photograph]): What the source has, in any order.
        rule (Rule): The rule.
        groups (Iterable): Ids of photographs that show the same thing. Defaults to ().
    """
    chosen = {photo.id: photo for group in choose_images(photos, rule).values()
              for photo in group}
    group_of = {member: group[0] for group in groups for member in group}
    split = make_split(
        [TableRow(photo.id, *photo.pair) for photo in chosen.values()], rule.seed, rule.unseen,
        rule.val, rule.test, {number: group_of.get(number, number) for number in chosen})
    return {phase: [chosen[row.image] for row in split if row.split == phase] for phase in PHASES}


def choose_images(photos: Iterable[Photograph], rule: Rule) -> dict[Pair, list[Photograph]]:
    """The photographs of each pair that has enough of them, in a drawn order."""
    by_pair: dict[Pair, dict[str, Photograph]] = defaultdict(dict)
    for photo in photos:
        if photo.attribute not in rule.left_out:
            by_pair[photo.pair][photo.id] = photo
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


def read_image(path: Path, side: int) -> Tensor | None:
    """A photograph, normalised, shape (3, side, side); None when it cannot be read.

    At 112 px it is squeezed into the square, as in the configs of Fashion; otherwise the middle is
    cut out.
    """
    try:
        with Image.open(path) as opened:
            image = opened.convert('RGB')
    except OSError:
        return None
    scale = side / min(image.size)
    size = (side, side) if side == 112 else tuple(max(side, round(n * scale)) for n in image.size)
    image = image.resize(size, Image.Resampling.BICUBIC)
    left, top = ((length - side) // 2 for length in image.size)
    pixels = np.array(image.crop((left, top, left + side, top + side)))
    return torch.from_numpy((pixels - MEAN) / STD).permute(2, 0, 1).float()


@torch.inference_mode()
def encode(photos: list[Photograph], folder: Path, weights: str,
           side: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids (N,) of the photographs that can be read, and their features (N, D)."""
    tower = DINOv2(pretrained=weights)
    tower.eval()
    ids: list[str] = []
    features: list[Tensor] = []
    for start in range(0, len(photos), 64):
        found = [(photo.id, image) for photo in photos[start:start + 64]
                 if (image := read_image(folder / photo.image, side)) is not None]
        if found:
            tokens = tower(torch.stack([image for _, image in found]))[-1]
            features.append(ProjectedBackbone.pooled(tokens, 'cls_avg', 'DINOv2'))
            ids += [number for number, _ in found]
        if start % 1024 == 0:
            print(f'{start}/{len(photos)}', flush=True)
    return np.array(ids), torch.cat(features).numpy()


def near_duplicates(photos: list[Photograph], features: Tensor,
                    rule: Rule) -> list[list[str]]:
    """Groups of ids; the first is the lowest one of the pair that is most frequent."""
    links = near_pairs(features, rule.same_photograph)
    links += [(i, j) for i, j in near_pairs(features, rule.threshold)
              if photos[i].pair == photos[j].pair]
    first: dict[str, int] = {}
    for row, photo in enumerate(photos):
        if photo.group and first.setdefault(photo.group, row) != row:
            links.append((first[photo.group], row))
    ordered = []
    for rows in groups_of(links):
        group = [photos[row] for row in rows]
        votes = Counter(photo.pair for photo in group)
        group.sort(key=lambda photo: (-votes[photo.pair], photo.order))
        ordered.append(group)
    return [[photo.id for photo in group]
            for group in sorted(ordered, key=lambda group: group[0].order)]


def report(phases: dict[str, list[Photograph]], groups: list[list[str]]) -> None:
    """Prints what was drawn."""
    seen = {photo.pair for photo in phases['train']}
    print(f'{len(groups)} groups of near-duplicates with {sum(map(len, groups))} photographs')
    for phase in PHASES:
        pairs = {photo.pair for photo in phases[phase]}
        print(f'{phase}: {len(phases[phase])} photographs, {len(pairs & seen)} seen pairs, '
              f'{len(pairs - seen)} unseen pairs, '
              f'{sum(photo.pair not in seen for photo in phases[phase])} photographs of them')


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('dataset', choices=RULES)
    parser.add_argument('source', type=Path, help='folder that its authors publish')
    parser.add_argument('out', type=Path, help='file to write, ending in .txt')
    parser.add_argument('--weights', help="DINOv2's dinov2_vits14_pretrain.pth")
    parser.add_argument('--features', type=Path,
                        help='file of the features (default: OUT with the ending .npz)')
    parser.add_argument('--threshold', type=float, help='cosine of near-duplicates with the same '
                        'pair (default: that of the dataset)')
    parser.add_argument('--same-photograph', type=float, help='cosine of near-duplicates with any '
                        'pairs (default: that of the dataset)')
    parser.add_argument('--seed', help='of the draw (default: that of the dataset)')
    parser.add_argument('--spare', type=int, help='compare only this many photographs more than '
                        'are drawn from a pair (default: all)')
    args = parser.parse_args(argv)
    if args.out.suffix != '.txt':
        parser.error('the file must end in .txt.')
    kind, rule = KINDS[args.dataset], RULES[args.dataset]
    rule = replace(rule, **{name: value for name in ('seed', 'threshold', 'same_photograph')
                            if (value := getattr(args, name)) is not None})
    folder = kind.find_source(args.source)
    photos = sorted((photo for photo in kind.read_source(folder)[0]
                     if photo.attribute not in rule.left_out), key=lambda photo: photo.order)
    if args.spare is not None:
        wider = replace(rule, max_images=rule.max_images + args.spare)
        photos = sorted((photo for group in choose_images(photos, wider).values()
                         for photo in group), key=lambda photo: photo.order)
    cache = args.features or args.out.with_suffix('.npz')
    if not cache.is_file():
        if args.weights is None:
            parser.error(f'{cache} does not exist: give --weights to compute the features.')
        ids, features = encode(photos, folder, args.weights, rule.side)
        np.savez(cache, ids=ids, features=features)
    with np.load(cache, allow_pickle=False) as arrays:
        ids, features = arrays['ids'], arrays['features']
    rows = {str(number): row for row, number in enumerate(ids)}
    photos = [photo for photo in photos if photo.id in rows]  # the others: unreadable
    stored = torch.from_numpy(features[[rows[photo.id] for photo in photos]])
    groups = near_duplicates(photos, stored, rule)
    if rule.together:
        phases = draw_together(photos, rule, groups)
        drawn = {photo.id for group in phases.values() for photo in group}
        groups = [kept for group in groups
                  if len(kept := [number for number in group if number in drawn]) > 1]
        about = 'Photographs of one leaf or package: each line is in one phase.'
    else:
        phases = draw_version(photos, rule, {number for group in groups for number in group[1:]})
        about = 'Near-duplicates: the first id of a line was kept, the others were dropped.'
    spare = '' if args.spare is None else f' --spare {args.spare}'
    write_version(args.out, phases, f'{args.out.stem}: drawn by draw_photographs.py {args.dataset} '
                  f'--seed {rule.seed} --threshold {rule.threshold} --same-photograph '
                  f'{rule.same_photograph}{spare}\nphase attribute object id id …', groups, about)
    report(phases, groups)
    return 0


if __name__ == '__main__':
    run_command(lambda: sys.exit(main()))
