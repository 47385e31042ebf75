"""The metadata file of the published layout: reading it safely, choosing rows."""
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mmcluspro.errors import Fault, FileError, reason_of, shown
from mmcluspro.utils.files import leaves
from mmcluspro.utils.plain_files import once_per_file
from mmcluspro.utils.safe_load import check_archive, load_pickle

from .layout import ROW_KEYS
from .names import labels
from .splits import PHASES, Pair, missing_file

Row = dict[str, Any]
LABELS = ('attr', 'obj')


@once_per_file(kept=1)
def read_metadata(path: Path) -> list[Row]:
    """Reads ``metadata_<split>.t7``, a torch-saved list of dicts, without running code.

    Only plain containers, strings and numbers are accepted (``weights_only=True``).
    Rows are not checked here, see :func:`row_faults`.
    """
    if not path.is_file():
        raise missing_file(path, 'metadata')
    check_archive(path, str(path))
    try:
        rows = load_pickle(path, str(path))
    except FileError:
        raise
    except pickle.UnpicklingError as error:
        raise FileError(
            path, 'it is not a torch-saved list of plain dicts: it is damaged, or holds other '
            f'Python objects, which could run code (torch says: {reason_of(error)})',
            'tools/dataset_converters/convert_metadata.py rewrites a file that holds NumPy '
            'strings or tuples, without running code.') from error
    except Exception as error:
        raise FileError(path, f'it cannot be read ({reason_of(error)})', 'Download it again, or '
                        'compare its size with the published one.') from error
    if not isinstance(rows, list):
        raise FileError(path, f'it holds a {type(rows).__name__}, expected a list of dicts with '
                        f'the keys {", ".join(ROW_KEYS)}', 'Download it again.')
    # Names that are no text stay, for row_faults.
    names = [row[key] for row in rows if isinstance(row, dict) for key in LABELS
             if isinstance(row.get(key), str)]
    forms = labels(names, path)
    if all(name == form for name, form in forms.items()):
        return rows
    return [{key: forms[value] if key in LABELS and isinstance(value, str) else value
             for key, value in row.items()} if isinstance(row, dict) else row for row in rows]


def row_faults(rows: Sequence[Any], path: Path) -> list[Fault]:
    """Rows that are not dicts of strings under the needed keys (counted from 0)."""
    faults = []
    for number, row in enumerate(rows):
        if isinstance(row, dict):
            wrong = [key for key in ROW_KEYS if not isinstance(row.get(key), str)]
            what = f'no text under {", ".join(wrong)}: {shown(row, 200)}' if wrong else ''
            away = [row[key] for key in ('image', '_image')
                    if isinstance(row.get(key), str) and leaves(row[key])]
            if away and not wrong:
                what = f'the image {shown(away[0])} is not a name below the folder of the images'
        else:
            what = f'a {type(row).__name__} instead of a dict'
        if what:
            faults.append(Fault('metadata row', f'{path} row {number}', what[:300]))
    return faults


class Selection(NamedTuple):
    """Rows of one phase.

    Attributes:
        numbers (list[int]): Rows that belong to the phase, counted from 0.
        skipped (dict[str, int]): Reason -> number of rows left out.
        faults (list[Fault]): Rows whose ``set`` contradicts the pair lists.
    """
    numbers: list[int]
    skipped: dict[str, int]
    faults: list[Fault]


def select_rows(rows: Sequence[Row], lists: Mapping[str, Mapping[Pair, int]], phase: str,
                path: Path) -> Selection:
    """Chooses the rows of a phase by their ``set``, as the published code does.

    Rows with attribute, object or set ``NA`` and pairs of no list are left out
    and counted. A row whose pair is in a list, but not in one its set may use,
    is a fault: an unseen pair in training would spoil every later number.
    """
    union = set().union(*(lists[name] for name in PHASES))
    allowed = set(lists['train']) | set(lists[phase])
    numbers, faults, skipped = [], [], Counter[str]()
    for number, row in enumerate(rows):
        if row['set'] != phase and row['set'] in PHASES:
            continue
        pair = (row['attr'], row['obj'])
        if 'NA' in (*pair, row['set']):
            skipped['attribute, object or set NA'] += 1
        elif row['set'] != phase:
            skipped['set none of train, val, test'] += 1
        elif pair not in union:
            skipped['pair in no pair list'] += 1
        elif pair not in allowed:
            what = ('is unseen (not in train_pairs.txt)' if phase == 'train' else
                    f'is in neither train_pairs.txt nor {phase}_pairs.txt')
            faults.append(Fault('set', f'{path} row {number}',
                                f'set is {phase!r}, but the pair ({" ".join(pair)}) {what}'))
        else:
            numbers.append(number)
    return Selection(numbers, dict(skipped), faults)
