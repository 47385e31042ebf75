"""Shows what each prototype stands for: the training images nearest to it.

    mmcluspro prototypes CLUSPRO.pth --primitive red star

The number before a row is the share of the primitive's images that are nearer to this prototype
than to its others. A prototype that training hardly used is called dead, its images are pale.
"""
import argparse
from collections.abc import Sequence
from typing import Any

from mmcluspro.datasets import CZSLDataset

from ..nearest_images import NearestImages
from ..options import (
    add_out_flag,
    add_run_flags,
    open_checkpoints,
    save_and_say,
)
from ..phase_run import evenly, picture, run_phase
from ..primitives import BRANCHES, names_of, split_by_branch
from ..prototype_plot import PrimitiveBlock, PrototypeRow, draw_prototypes


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog='mmcluspro prototypes', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('checkpoint', help='of a ClusPro model, with its prototypes')
    parser.add_argument('--primitive', nargs='+', required=True, metavar='NAME',
                        help='attributes or objects; attr:NAME and obj:NAME for a name of both')
    parser.add_argument('--images', type=int, default=5, help='images per prototype (default: 5)')
    parser.add_argument('--max-images', type=int, metavar='N',
                        help='look at N evenly spread images only (default: all)')
    add_run_flags(parser, 'train')
    add_out_flag(parser, 'prototypes.png')
    return parser.parse_args(argv)


def check_banks(model: Any, chosen: dict[str, list[int]], name: str) -> None:
    """Raises an error in words where there are no prototypes."""
    for branch, classes in chosen.items():
        if classes and branch not in model.head.clustered:
            raise ValueError(
                f'{name} has no prototypes of {BRANCHES[branch]}s: it is not a ClusPro model, was '
                'published without them, or clusters the other branch only. Give an epoch_*.pth '
                'or best_*.pth of a training with ClusProHead.')
        if classes and branch not in model.head.prototypes:
            raise ValueError(f'The prototypes of {name} were never initialised.')


def make_block(dataset: CZSLDataset, bank: Any, nearest: NearestImages, branch: str,
               index: int) -> PrimitiveBlock:
    """Rows of one primitive, and words about them."""
    start, end = bank.offsets[index:index + 2].tolist()
    dead, shares = bank.dead().cpu(), nearest.shares()
    name, total = names_of(dataset.space, branch)[index], int(nearest.assigned[start:end].sum())
    rows = [PrototypeRow([picture(dataset, image, 160) for image in nearest.images(row)],
                         float(shares[row]), bool(dead[row])) for row in range(start, end)]
    words = ', '.join('dead' if row.dead else f'{row.share:.0%}' for row in rows)
    print(f'{name} ({BRANCHES[branch]}, {total} images): {words}')
    return PrimitiveBlock(f'{name} ({BRANCHES[branch]}, {total} images)', rows)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and draws."""
    args = parse_args(argv)
    (model, ), dataset = open_checkpoints([args.checkpoint], args)
    chosen = split_by_branch(dataset.space, args.primitive)
    check_banks(model, chosen, args.checkpoint)
    banks = {branch: model.head.prototypes[branch]
             for branch, classes in chosen.items() if classes}
    nearest = {branch: NearestImages(bank.prototypes, bank.offsets, args.images)
               for branch, bank in banks.items()}
    indices = evenly(len(dataset), args.max_images)
    for batch in run_phase(model, dataset, indices, batch_size=args.batch_size,
                           progress=f'Features of {len(indices)} {args.phase} images'):
        for branch, found in nearest.items():
            found.update(batch.features[branch], batch.labels[branch], batch.index)
    blocks = [make_block(dataset, banks[branch], nearest[branch], branch, index)
              for branch, classes in chosen.items() for index in classes]
    save_and_say(draw_prototypes(blocks), args.out)
