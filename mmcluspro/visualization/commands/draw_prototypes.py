"""Shows the training images nearest to each prototype: ``mmcluspro prototypes``."""
from collections.abc import Sequence
from typing import Any

from mmcluspro.datasets import CZSLDataset
from mmcluspro.flags.picture_flags import parse_prototypes as parse_args

from ..options import (
    open_checkpoints,
    save_and_say,
)
from ..phase_run import evenly, picture, run_phase
from ..primitives import BRANCHES, names_of, split_by_branch
from ..prototype_plot import PrimitiveBlock, PrototypeRow, draw_prototypes
from ..thumbnails import NearestImages


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
