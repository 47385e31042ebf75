"""The tables of the paper as data: rows, runs and printed numbers."""
import re
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import Any

import yaml

from mmcluspro.errors import FileError, reason_of
from mmcluspro.utils.plain_files import read_text

LAYOUT = 'A table has title, world, datasets and rows; a row has name, config and options.'
METRICS = ('seen', 'unseen', 'hm', 'auc')
DATASETS = dict(mitstates='MIT-States', utzappos='UT-Zappos', cgqa='C-GQA', shapes='Shapes',
                shapes_large='Shapes (large)', fashion='Fashion')
# The one split that our results on a data set are about.
SPLITS = dict(shapes='shapes-v2', shapes_large='shapes-large-v2', fashion='fashion-v1')
WORLDS = dict(closed='czsl', open='czsl_open')


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        name (str): As printed.
        config (str): Config below ``configs/`` or an absolute path, with
            ``{dataset}``; empty for a method that is not in this package.
        elsewhere (dict): Config by dataset where it has another name.
        options (tuple[str]): ``KEY=VALUE`` as for ``--cfg-options``.
        file (str): Config that has these options in it already, or empty.
        paper (dict): The paper's seen, unseen, HM and AUC by dataset.
        std (dict): The paper's standard deviations by dataset.
    """
    name: str
    config: str = ''
    options: tuple[str, ...] = ()
    file: str = ''
    paper: dict[str, list[float]] = field(default_factory=dict)
    std: dict[str, list[float]] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)

    def config_on(self, dataset: str) -> str:
        """The config of a dataset."""
        return self.elsewhere.get(dataset, self.config).format(dataset=dataset)


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    Attributes:
        key (str): For example 'table4a'.
        title (str): What it compares.
        world (str): 'closed' or 'open'.
        datasets (tuple[str]): Where its rows have configs.
        rows (tuple[Row]): In the paper's order.
        reference (str): Row that differences are taken to.
        together (str): Another table made of the same runs, or empty.
        note (str): A remark to print below, or empty.
    """
    key: str
    title: str
    world: str
    datasets: tuple[str, ...]
    rows: tuple[Row, ...]
    reference: str
    together: str = ''
    note: str = ''

    @property
    def label(self) -> str:
        """str: For example 'Table 4a'."""
        return self.key.replace('table', 'Table ')

    @property
    def printed(self) -> bool:
        """bool: Whether the paper prints numbers for it."""
        return any(row.paper for row in self.rows)

    def paper_dataset(self, dataset: str) -> str:
        """The dataset whose printed numbers stand beside ours: its own, or UT-Zappos."""
        own = any(dataset in row.paper for row in self.rows)
        return dataset if own else 'utzappos'

    def pick(self, names: list[str] | None) -> tuple[Row, ...]:
        """Rows that have runs, or those of the given names (case is ignored)."""
        ours = tuple(row for row in self.rows if row.config)
        if names is None:
            return ours
        by_name = {row.name.casefold(): row for row in ours}
        unknown = [name for name in names if name.casefold() not in by_name]
        if unknown:
            raise ValueError(f'{self.label} has no row {unknown[0]!r} to run. Its rows: '
                             + ', '.join(repr(row.name) for row in ours) + '.')
        wanted = {name.casefold() for name in names}
        return tuple(row for row in ours if row.name.casefold() in wanted)


def load_tables(path: str | Path) -> dict[str, Table]:
    """Reads a file like ``tools/analysis_tools/paper_tables.yml``.

    Args:
        path (str | Path): Configs that stand beside it are meant before those of the package.

    Returns:
        dict[str, Table]: By name.
    """
    path = Path(path).resolve()
    tables = {}
    for key, entry in _read(path).items():
        if not isinstance(entry, dict) or 'rows' not in entry:
            continue  # Table 10
        _check_types(key, entry, path)
        missing = {'title', 'world', 'datasets'} - entry.keys()
        unknown = {name for row in entry['rows'] for name in row} - set(Row.__annotations__)
        if missing or unknown:
            what = f'it has no {sorted(missing)[0]!r}' if missing else (
                f'it has a row with {sorted(unknown, key=str)[0]!r}')
            raise FileError(path, what, LAYOUT, key)
        tables[key] = _table(key, entry, path.parent)
    return tables


def _read(path: Path) -> dict[Any, Any]:
    try:
        content = yaml.safe_load(read_text(path, LAYOUT))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, f'it is not YAML, or damaged ({reason_of(error)})', LAYOUT) from None
    if not isinstance(content, dict):
        raise FileError(path, f'it holds a {type(content).__name__}', LAYOUT)
    return content


def _check_types(key: Any, entry: dict[Any, Any], path: Path) -> None:
    """Refuses values of another type than :class:`Table` and :class:`Row` have."""
    texts = ('title', 'world', 'reference', 'together', 'note')
    faults = [f'its name is {key!r:.80}'] * (
        not isinstance(key, str) or not re.fullmatch(r'[\w.-]+', key))
    faults += [f'{name} is {entry[name]!r:.80}' for name in texts
               if name in entry and not isinstance(entry[name], str)]
    faults += [f'world is {entry.get("world")!r:.80}'] * (
        isinstance(entry.get('world'), str) and entry['world'] not in WORLDS)
    faults += [f'{name} is {entry[name]!r:.80}' for name in ('datasets', 'rows')
               if name in entry and (not isinstance(entry[name], list) or not entry[name])]
    faults += [f'datasets holds {name!r:.80}' for name in entry.get('datasets') or ()
               if not isinstance(name, str)] if not faults else []
    for number, row in enumerate(entry['rows'] if not faults else ()):
        faults += _row_faults(row, f'row {number + 1}')
    if faults:
        raise FileError(path, faults[0], LAYOUT, str(key)[:80])


def _row_faults(row: Any, where: str) -> list[str]:
    if not isinstance(row, dict):
        return [f'{where} is {row!r:.80}']
    faults = [f'{where}: {name} is {row.get(name)!r:.80}' for name in ('name', 'config', 'file')
              if not isinstance(row.get(name, ''), str)]
    faults += [f'{where} has no name'] * (not row.get('name'))
    options = row.get('options', [])
    faults += [f'{where}: options is {options!r:.80}'] * (
        not isinstance(options, list) or not all(isinstance(option, str) for option in options))
    elsewhere = row.get('elsewhere', {})
    faults += [f'{where}: elsewhere is {elsewhere!r:.80}'] * (
        not isinstance(elsewhere, dict)
        or not all(isinstance(part, str) for pair in elsewhere.items() for part in pair))
    for name in ('paper', 'std'):
        numbers = row.get(name, {})
        good = isinstance(numbers, dict) and all(
            isinstance(values, list) and all(isinstance(value, (int, float)) for value in values)
            for values in numbers.values())
        faults += [f'{where}: {name} is {numbers!r:.80}'] * (not good)
    return faults


def _row(entry: dict[str, Any], folder: Path) -> Row:
    row = Row(**{**entry, 'options': tuple(entry.get('options', ()))})
    pattern = escape(row.config or '').replace('{dataset}', '*')
    beside = row.config and any(folder.glob(pattern))
    return replace(row, config=str(folder / row.config)) if beside else row


def _table(key: str, entry: dict[str, Any], folder: Path) -> Table:
    rows = tuple(_row(row, folder) for row in entry['rows'])
    ours = [row.name for row in rows if row.config]
    reference = entry.get('reference', ours[0] if ours else '')
    if reference not in ours:
        raise FileError(str(folder), f'the reference {reference!r} is not a row with a config '
                        f'({ours})', LAYOUT, key)
    return Table(key, entry['title'], entry['world'], tuple(entry['datasets']), rows, reference,
                 entry.get('together', ''), entry.get('note', ''))


def expand_names(names: list[str], tables: dict[str, Table], dataset: str) -> list[Table]:
    """Tables by name; 'table4' means all its parts, 'all' all that the dataset has.

    Args:
        names (list[str]): Names from the command line.
        tables (dict[str, Table]): All tables.
        dataset (str): Must be one of each named table's.

    Returns:
        list[Table]: In the order of the file, each once.
    """
    if dataset not in DATASETS:
        raise ValueError(f'--dataset must be one of {", ".join(DATASETS)}, got {dataset!r}.')
    chosen: set[str] = set()
    for name in names:
        wanted = name.lower() if name.lower().startswith('table') else f'table{name.lower()}'
        found = [key for key in tables
                 if key in (name, wanted) or (key[-1].isalpha() and key[:-1] == wanted)]
        if name == 'all':
            found = [key for key, table in tables.items() if dataset in table.datasets]
        if not found:
            raise ValueError(
                f'There is no table {name!r} to run; there are {", ".join(tables)}, and all. Table '
                '10 is measured by tools/analysis_tools/efficiency.py.')
        for key in found:
            if dataset not in tables[key].datasets:
                raise ValueError(f'{tables[key].label} has no rows on {dataset}, only on '
                                 f'{", ".join(tables[key].datasets)}.')
        chosen.update(found)
    return [table for key, table in tables.items() if key in chosen]
