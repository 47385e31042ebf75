"""Published counts of the datasets, for ``check_dataset``.

Pairs are counted in the split files themselves: for C-GQA's validation the
paper's table swaps seen (1040) and unseen (1252). Image counts that the
literature gives in thousands are compared as such.
"""
from typing import NamedTuple


class Counts(NamedTuple):
    """Expected numbers; ``images`` of a phase below 1000 stand for thousands, None is not known.

    Attributes:
        primitives (tuple): Attributes, objects.
        train (int): Training pairs.
        val (tuple): Seen and unseen validation pairs.
        test (tuple): Seen and unseen test pairs.
        images (tuple): Images of train, val, test.
        total (int, optional): Images of the three together.
    """
    primitives: tuple[int, int] | None = None
    train: int | None = None
    val: tuple[int, int] | None = None
    test: tuple[int, int] | None = None
    images: tuple[int, int, int] | None = None
    total: int | None = None


EXPECTED = {
    'mit-states': Counts((115, 245), 1262, (300, 300), (400, 400), (30, 10, 13), 53753),
    'ut-zappos': Counts((16, 12), 83, (15, 15), (18, 18), (22998, 3, 3)),
    'c-gqa': Counts((413, 674), 5592, (1040, 1252), (888, 923), (27, 7, 5), 39298),
    'clothing16k': Counts((9, 8), 18, (10, 10), (9, 8), (7242, 5515, 3413), 16170),
    'ao-clevr': Counts((8, 3)),  # its splits differ
    'vaw-czsl': Counts(),  # no published table could be looked up
    'fashion': Counts((35, 60), 312, (300, 104), (300, 104), (5659, 4122, 4112), 13893),
}


def expected_table(name: str) -> dict[str, int | str]:
    """Row of the report -> expected number, or "30k" for a rounded one."""
    if name not in EXPECTED:
        return {}
    counts = EXPECTED[name]
    table: dict[str, int | str] = {}
    if counts.primitives is not None:
        table.update(zip(('attributes', 'objects'), counts.primitives))
    if counts.train is not None:
        table['train pairs'] = counts.train
    for phase, pairs in dict(val=counts.val, test=counts.test).items():
        if pairs is not None:
            table.update(zip((f'{phase} pairs, seen', f'{phase} pairs, unseen'), pairs))
    for phase, number in zip(('train', 'val', 'test'), counts.images or ()):
        table[f'{phase} images'] = f'{number}k' if number < 1000 else number
    if counts.total is not None:
        table['images in all'] = counts.total
    return table


def agrees(found: int, expected: int | str | None) -> bool:
    """Whether a count is the expected one, to the thousand where that is all we know."""
    if isinstance(expected, str):
        return f'{(found + 500) // 1000}k' == expected
    return expected is None or found == expected
