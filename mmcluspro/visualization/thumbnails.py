"""The training images nearest to each prototype, and small pictures of them and of examples."""
from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.artefact import TrainedModel
from mmcluspro.artefact.prototype_images import (
    PrototypeImages,
    ShownExample,
    ShownPrototype,
    as_jpeg,
    bank_digest,
)
from mmcluspro.cli.pictures import MAX_IMAGES
from mmcluspro.datasets import CZSLDataset

from .cases import choose_cases
from .phase_answers import PhaseAnswers
from .phase_run import evenly, image_batches, picture, unit_features


class NearestImages:
    """Keeps the ``count`` best images of each prototype, by cosine, inside its primitive.

    Args:
        prototypes (Tensor): Shape (P, D).
        offsets (Tensor): ``prototypes[offsets[c]:offsets[c + 1]]`` belong to primitive ``c``,
            shape (C + 1,).
        count (int): Images to keep of each.
    """

    def __init__(self, prototypes: Tensor, offsets: Tensor, count: int) -> None:
        if count < 1:
            raise ValueError(f'The number of images must be at least 1, got {count}.')
        self.prototypes = F.normalize(prototypes.float().cpu(), dim=1)
        sizes = offsets.cpu().diff()
        self.owner = torch.arange(len(sizes)).repeat_interleave(sizes)
        self.cosine = torch.full((len(prototypes), count), -torch.inf)
        self.index = torch.full((len(prototypes), count), -1)
        self.assigned = torch.zeros(len(prototypes), dtype=torch.long)

    def update(self, features: Tensor, labels: Tensor, index: Tensor) -> None:
        """Adds a batch of images.

        Args:
            features (Tensor): Shape (B, D).
            labels (Tensor): Primitive of each, shape (B,).
            index (Tensor): Non-negative index of each image, shape (B,).
        """
        own = labels[:, None] == self.owner
        cosine = (F.normalize(features.float(), dim=1) @ self.prototypes.T).masked_fill(
            ~own, -torch.inf)
        has = own.any(dim=1)  # a primitive may have no prototypes
        self.assigned += torch.bincount(cosine[has].argmax(dim=1), minlength=len(self.assigned))
        # Stable, the kept ones first: of equal cosines the earlier image stays.
        every = torch.cat([self.cosine, cosine.T], dim=1)
        every, order = every.sort(dim=1, descending=True, stable=True)
        images = torch.cat([self.index, index.expand(len(self.index), -1)], dim=1)
        count = self.cosine.shape[1]
        self.cosine, self.index = every[:, :count], images.gather(1, order[:, :count])
        self.index = self.index.masked_fill(self.cosine == -torch.inf, -1)

    def shares(self) -> Tensor:
        """Share of its primitive's images whose nearest prototype each one is, shape (P,)."""
        classes = int(self.owner.max()) + 1 if len(self.owner) else 0
        total = torch.zeros(classes).index_add_(0, self.owner, self.assigned.float())
        return self.assigned / total[self.owner].clamp_min(1)

    def images(self, row: int) -> list[int]:
        """The images of a prototype, nearest first; fewer if there are not enough."""
        return [index for index in self.index[row].tolist() if index >= 0]


SIDE, EXAMPLE_SIDE = 72, 320  # pixels
MOST = 64  # primitives of a branch


def prototype_images(model: TrainedModel, dataset: CZSLDataset, count: int = 4, most: int = MOST,
                     max_images: int | None = MAX_IMAGES, batch_size: int = 64,
                     progress: str = '') -> PrototypeImages:
    """Finds the training images nearest to each prototype, and shrinks them.

    Args:
        model (TrainedModel): With prototypes; without any, nothing is found.
        dataset (CZSLDataset): Training images, as a test sees them.
        count (int): Images of each prototype. Defaults to 4.
        most (int): Primitives of a branch, the most frequent ones. Defaults to 64.
        max_images (int, optional): Look at so many images, evenly spread. Defaults to 2000.
        batch_size (int): Defaults to 64.
        progress (str): Says on stderr how far it is. Defaults to '': nothing.
    """
    found = PrototypeImages()
    banks = {branch: bank for branch, bank in model.network.head.prototypes.items()
             if bool(bank.initialised)}
    if not banks:
        return found
    nearest = {branch: NearestImages(bank.prototypes, bank.offsets, count)
               for branch, bank in banks.items()}
    images = {branch: torch.zeros(bank.num_classes, dtype=torch.long)
              for branch, bank in banks.items()}
    for index, feats, labels in image_batches(
            model, dataset, evenly(len(dataset), max_images), batch_size, progress):
        for branch, feature in unit_features(feats).items():
            if branch in banks:
                nearest[branch].update(feature, labels[branch], index)
                images[branch] += torch.bincount(labels[branch], minlength=len(images[branch]))
    places: dict[int, int] = {}  # of the images in the dataset → in the file
    for branch, bank in banks.items():
        found.digests[branch] = bank_digest(bank)
        rows = found.prototypes[branch] = {}
        shares, dead = nearest[branch].shares(), bank.dead().cpu()
        for primitive in sorted(images[branch].argsort(descending=True, stable=True)[:most]
                                .tolist()):
            start, end = bank.offsets[primitive:primitive + 2].tolist()
            for row in range(start, end):
                shown = [places.setdefault(i, len(places)) for i in nearest[branch].images(row)]
                rows[row] = ShownPrototype(float(shares[row]), bool(dead[row]), shown)
    found.pictures = [as_jpeg(Image.fromarray(picture(dataset, index)), SIDE) for index in places]
    return found


def add_examples(found: PrototypeImages, dataset: CZSLDataset, answers: PhaseAnswers,
                 count: int = 6, seed: int = 0) -> None:
    """Adds test images to try: two that are answered rightly, the others at random.

    Args:
        found (PrototypeImages): Where to add them.
        dataset (CZSLDataset): Of the answers.
        answers (PhaseAnswers): Of a test.
        count (int): How many. Defaults to 6.
        seed (int): Defaults to 0.
    """
    target, seen = answers.outcomes.target, answers.seen
    right = choose_cases(np.flatnonzero(answers.outcomes.right), target, seen, 2, seed)
    rest = choose_cases(np.arange(len(target)), target, seen, count + 2, seed)
    for row in dict.fromkeys([*right, *rest]):
        if len(found.examples) == count:
            return
        image = Image.fromarray(picture(dataset, int(answers.index[row])))
        found.examples.append(ShownExample(
            len(found.pictures), *answers.pair_names(target[row]), bool(seen[row])))
        found.pictures.append(as_jpeg(image, EXAMPLE_SIDE, square=False, quality=90))
