"""Captioned pictures to pre-train ``tiny_clip`` on.

The captions are as loose as those of the web: most name one primitive or both,
some are wrong, some say nothing. The pictures have another look and other mode
frequencies than the datasets. No pair that any version holds out is drawn.
"""
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .attributes import IMAGE_SIZE, draw_image
from .draws import Draws
from .scene import Look
from .versions import VERSIONS, Pair, split_pairs

BOTH = ('a photo of a {a} {o}', 'a {a} {o}', 'a photo of {a} {o}', 'the {a} {o}',
        'a picture of a {a} {o}', 'a drawing of a {a} {o}', '{a} {o}', 'a {o} that is {a}',
        'a close-up of a {a} {o}', 'my {a} {o}')
OBJECT = ('a photo of a {o}', 'a {o}', 'a photo of {o}', 'the {o}', 'a picture of a {o}',
          'a drawing of a {o}', '{o}', 'a nice {o}', 'my new {o}')
ATTRIBUTE = ('something {a}', 'a photo of {a} object', 'a {a} thing', 'a photo of something {a}',
             'it is {a}', '{a}')
NEITHER = ('a picture', 'a photo', 'untitled', 'a drawing of a thing', 'for sale', 'my photo')

# Most pictures of the web show their subject large, upright and in its common form.
STUDIO = Look(clutter=1, noise=4.0, turn=6.0, scales=(0.78, 0.9), tint=10.0, haze=0.0,
              first_mode=0.8, veil=0.0, saturation=0.25)
WILD = Look(first_mode=0.8)
STUDIO_SHARE = 0.6


def pretraining_pairs() -> list[Pair]:
    """Pairs that some version has seen and none holds out, sorted."""
    seen = {pair for name in VERSIONS for pair in split_pairs(name)['seen']}
    held = {pair for name in VERSIONS for part in ('val', 'test')
            for pair in split_pairs(name)[part]}
    return sorted(seen - held)


def draw_pretraining(pictures: int, seed: int) -> tuple[NDArray[np.uint8], list[Pair]]:
    """Pictures for pre-training, the pairs in turn.

    Args:
        pictures (int): Number of pictures a pair.
        seed (int): Their seed; never one of a dataset's, whose seeds start
            with the version's name.

    Returns:
        tuple: RGB images (N, H, W, 3) and the pair of each.
    """
    pairs = [pair for pair in pretraining_pairs() for _ in range(pictures)]
    images = np.empty((len(pairs), IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8)
    for i, (attribute, obj) in enumerate(pairs):
        look = STUDIO if Draws('look', seed, i).uniform() < STUDIO_SHARE else WILD
        images[i] = draw_image(attribute, obj, ('pretraining', seed, i), look)[0]
    return images, pairs


class Captioner:
    """Writes captions that are in part wrong or empty.

    Args:
        pairs (Sequence): The only pairs that a caption may name together.
        wrong (float): Probability that a name is another one. Defaults to 0.06.
    """

    def __init__(self, pairs: Sequence[Pair], wrong: float = 0.06) -> None:
        self.pairs, self.wrong = tuple(pairs), wrong
        self._allowed = frozenset(pairs)

    def __call__(self, draws: Draws, pair: Pair) -> str:
        """A caption for a picture of ``pair``."""
        attribute, obj = pair
        if draws.uniform() < self.wrong:
            attribute = draws.choice(self.pairs)[0]
        if draws.uniform() < self.wrong:
            obj = draws.choice(self.pairs)[1]
        kind = draws.uniform()
        templates = (BOTH if kind < 0.6 else OBJECT if kind < 0.82 else
                     ATTRIBUTE if kind < 0.93 else NEITHER)
        if templates is BOTH and (attribute, obj) not in self._allowed:
            templates = OBJECT  # a wrong name must not make a pair that is held out
        return draws.choice(templates).format(a=attribute, o=obj)
