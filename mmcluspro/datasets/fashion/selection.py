"""How a version is drawn: which pairs, which photographs, which of them are unseen.

Chance comes from SHA-256 of names and ids (see :func:`shuffled`), so that a draw depends neither
on the order of the file nor on a library's generator.
"""
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ..splits import PHASES, Pair
from ..splitting import hold_back, shuffled
from .styles import Product


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
