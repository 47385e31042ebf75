"""What is odd about a split of own data, in words."""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from .splits import PHASES, Pair
from .table_file import TableRow

FEW_TRAINING = 5  # images of a seen pair below which it is counted
SMALL_TRAINING = 0.25  # share of all images; a split by default has 0.42
WORDS = dict(train='training', val='validation', test='test')


def too_few_names(pairs: Collection[Pair]) -> str:
    """What is missing where no pair can be held out from training; '' if one can.

    Args:
        pairs (Collection[Pair]): All pairs of the data.
    """
    attrs, objs = Counter(attr for attr, _ in pairs), Counter(obj for _, obj in pairs)
    if any(attrs[attr] > 1 and objs[obj] > 1 for attr, obj in pairs):
        return ''
    return (f'{len(attrs)} attribute{"s" * (len(attrs) > 1)}, {len(objs)} object'
            f'{"s" * (len(objs) > 1)} and {len(pairs)} pair{"s" * (len(pairs) > 1)} are too few: '
            'to hold a pair out, its attribute and its object must each occur in another pair '
            '(for example wet cat, dry cat and wet dog; wet cat can be held out)')


def split_warnings(rows: Sequence[TableRow]) -> list[str]:
    """Warnings about empty and one-sided phases and pairs with few training images.

    Args:
        rows (Sequence[TableRow]): Images with ``split`` set.
    """
    images: dict[str, Counter[Pair]] = defaultdict(Counter)
    for row in rows:
        images[row.split][row.attribute, row.object] += 1
    seen, found = set(images['train']), []
    for phase in PHASES:
        pairs, name = set(images[phase]), WORDS[phase]
        if not pairs:
            found.append(f'The {name} split is empty.')
        elif phase != 'train' and not pairs & seen:
            found.append(f'The {name} split has unseen pairs only: its accuracy on seen pairs '
                         'cannot be measured.')
        elif phase != 'train' and not pairs - seen:
            found.append(f'The {name} split has seen pairs only: it cannot tell how well new pairs '
                         'are recognised.')
    training = images['train'].total()
    if 0 < training < SMALL_TRAINING * len(rows):
        found.append(f'Only {training} of {len(rows)} images ({training / len(rows):.0%}) are for '
                     'training. With --group-by, choose smaller groups: each group that has an '
                     'image of an unseen pair leaves training. Or lower --unseen-fraction.')
    few = sorted(pair for pair in seen if images['train'][pair] < FEW_TRAINING)
    if few:
        names = ', '.join(' '.join(pair) for pair in few[:3]) + (', …' if len(few) > 3 else '')
        found.append(f'{len(few)} of {len(seen)} seen pairs have fewer than {FEW_TRAINING} '
                     f'training images: {names}')
    return found
