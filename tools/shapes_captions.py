"""Captioned pictures to pre-train ``tiny_clip`` on.

The captions are as loose as those of the web: most name one primitive or both,
some use a neighbouring word, some are wrong, some say nothing, and their wording
goes with the kind of picture. The pictures have other looks and other mode
frequencies than the datasets. No pair that any version holds out is drawn or named.
"""
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mmcluspro.datasets.shapes.draw import Draws, Look
from mmcluspro.datasets.shapes.objects import OBJECTS
from mmcluspro.datasets.shapes.versions import IMAGE_SIZE, VERSIONS, Pair, draw_image, split_pairs

# {s} is how people speak of the kind of picture: WORDING below.
BOTH = ('{s} a {a} {o}', '{s} {a} {o}', '{s} the {a} {o}', '{s} a {o} that is {a}', 'a {a} {o}',
        '{a} {o}')
OBJECT = ('{s} a {o}', '{s} {o}', '{s} the {o}', 'a {o}', '{o}')
ATTRIBUTE = ('{s} {a} object', '{s} something {a}', '{s} a {a} thing', 'something {a}', '{a}')
NEITHER = ('untitled', 'for sale', '{s} a thing', '{s} it')

# Most pictures of the web show their subject large, upright and in its common form;
# snapshots show it as it comes.
STUDIO = Look(clutter=1, noise=4.0, turn=6.0, scales=(0.78, 0.9), tint=10.0, haze=0.0,
              first_mode=0.9, veil=0.0, saturation=0.25)
WILD = Look(first_mode=0.6)
STUDIO_SHARE = 0.6
WORDING = {
    STUDIO: ('a photo of', 'a picture of', 'a studio shot of', 'a clean photo of'),
    WILD: ('a snapshot with', 'found outside ,', 'a noisy shot with', 'my view on'),
}


def pretraining_pairs() -> list[Pair]:
    """Pairs that some version has seen and none holds out, sorted."""
    seen = {pair for name in VERSIONS for pair in split_pairs(name)['seen']}
    held = {pair for name in VERSIONS for part in ('val', 'test')
            for pair in split_pairs(name)[part]}
    return sorted(seen - held)


def draw_pretraining(pictures: int, seed: int, plain: int = 0
                     ) -> tuple[NDArray[np.uint8], list[Pair], list[Look]]:
    """Pictures for pre-training, the pairs in turn.

    Args:
        pictures (int): Number of pictures per pair.
        seed (int): Their seed; never one of a dataset's, whose seeds start
            with the version's name.
        plain (int): Number of plain pictures per object, without an attribute.
            Defaults to 0.

    Returns:
        tuple: RGB images (N, H, W, 3), and the pair (of a plain picture '' and
        the object) and the look of each.
    """
    pairs = [pair for pair in pretraining_pairs() for _ in range(pictures)]
    pairs += [('', obj) for obj in OBJECTS for _ in range(plain)]
    looks = [STUDIO if Draws('look', seed, i).uniform() < STUDIO_SHARE else WILD
             for i in range(len(pairs))]
    images = np.empty((len(pairs), IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8)
    for i, ((attribute, obj), look) in enumerate(zip(pairs, looks)):
        drawn = look if attribute else replace(look, first_mode=0.5)
        images[i] = draw_image(attribute, obj, ('pretraining', seed, i), drawn)[0]
    return images, pairs, looks


def neighbours(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Two other names that people also use for what each name means; fixed by the names."""
    near = {}
    for name in names:
        others = [other for other in names if other != name]
        draws = Draws('neighbours', name)
        first = others.pop(draws.integer(0, len(others)))
        near[name] = (first, draws.choice(others))
    return near


class Captioner:
    """Writes captions that are in part loose, wrong or empty.

    Args:
        pairs (Sequence): The only pairs that a caption may name together.
        wrong (float): Probability that a name is any other one. Defaults to 0.05.
        loose (float): Probability that a name is one of its two neighbours'. Defaults to 0.3.
        plain (float): Probability that the wording of the other kind is used. Defaults to 0.15.
    """

    def __init__(self, pairs: Sequence[Pair], wrong: float = 0.05, loose: float = 0.3,
                 plain: float = 0.15) -> None:
        self.pairs, self.wrong, self.loose, self.plain = tuple(pairs), wrong, loose, plain
        self._allowed = frozenset(pairs)
        self._near = [neighbours(sorted({pair[i] for pair in pairs})) for i in (0, 1)]

    def _name(self, draws: Draws, pair: Pair, part: int) -> str:
        chance = draws.uniform()
        if chance < self.wrong:
            return draws.choice(self.pairs)[part]
        if chance < self.wrong + self.loose:
            return draws.choice(self._near[part][pair[part]])
        return pair[part]

    def __call__(self, draws: Draws, pair: Pair, look: Look) -> str:
        """A caption for a picture of ``pair``; a plain one has the object's own name only."""
        plain = not pair[0]
        attribute, obj = pair if plain else (self._name(draws, pair, 0), self._name(draws, pair, 1))
        kind = 0.6 if plain else draws.uniform()
        templates = (BOTH if kind < 0.6 else OBJECT if kind < 0.82 else
                     ATTRIBUTE if kind < 0.93 else NEITHER)
        if templates is BOTH and (attribute, obj) not in self._allowed:
            templates = OBJECT  # another name must not make a pair that is held out
        if draws.uniform() < self.plain:
            look = draws.choice((STUDIO, WILD))
        wording = draws.choice(WORDING[look])
        return draws.choice(templates).format(s=wording, a=attribute, o=obj)
