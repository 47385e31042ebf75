"""Published counts of the datasets, for ``check_dataset``.

Pairs are counted in the split files themselves: for C-GQA's validation the
paper's table swaps seen (1040) and unseen (1252). Image counts that the
literature gives in thousands are compared as such.
"""
from typing import NamedTuple


class Counts(NamedTuple):
    """Expected numbers; ``images`` of a phase below 1000 stand for thousands.

    Attributes:
        primitives (tuple): Attributes, objects.
        train (int): Training pairs.
        val (tuple): Seen and unseen validation pairs.
        test (tuple): Seen and unseen test pairs.
        images (tuple): Images of train, val, test.
        total (int, optional): Images of the three together.
    """
    primitives: tuple[int, int]
    train: int
    val: tuple[int, int]
    test: tuple[int, int]
    images: tuple[int, int, int]
    total: int | None = None


EXPECTED = {
    'mit-states': Counts((115, 245), 1262, (300, 300), (400, 400), (30, 10, 13), 53753),
    'ut-zappos': Counts((16, 12), 83, (15, 15), (18, 18), (22998, 3, 3)),
    'c-gqa': Counts((413, 674), 5592, (1040, 1252), (888, 923), (27, 7, 5), 39298),
    'fashion': Counts((35, 60), 312, (300, 104), (300, 104), (5659, 4122, 4112), 13893),
}


def expected_table(name: str) -> dict[str, int | str]:
    """Row of the report -> expected number, or "30k" for a rounded one."""
    if name not in EXPECTED:
        return {}
    counts = EXPECTED[name]
    table: dict[str, int | str] = {
        'attributes': counts.primitives[0], 'objects': counts.primitives[1],
        'train pairs': counts.train,
        'val pairs, seen': counts.val[0], 'val pairs, unseen': counts.val[1],
        'test pairs, seen': counts.test[0], 'test pairs, unseen': counts.test[1],
    }
    for phase, number in zip(('train', 'val', 'test'), counts.images):
        table[f'{phase} images'] = f'{number}k' if number < 1000 else number
    if counts.total is not None:
        table['images in all'] = counts.total
    return table


def agrees(found: int, expected: int | str | None) -> bool:
    """Whether a count is the expected one, to the thousand where that is all we know."""
    if isinstance(expected, str):
        return f'{(found + 500) // 1000}k' == expected
    return expected is None or found == expected
