"""From records to the numbers of a table."""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .records import Run
from .run_store import Store
from .statistics import Difference, mean_and_std, paired_difference
from .tables import METRICS, WORLDS, Row, Table


@dataclass
class Summary:
    """What is known of a row.

    Attributes:
        row (Row): The row.
        run (Run | None): Its run, of the first seed; None for rows of the paper only.
        records (dict[int, dict]): Record by seed, of runs that measured the table's world.
        changed (dict[int, list]): Seeds whose record was made with another
            config, with the sections that differ; they are not in ``records``.
        difference (dict[str, Difference | None]): To the reference, by metric
            (``czsl/auc`` …).
        is_reference (bool): Whether this is the row that others are compared to.
    """
    row: Row
    run: Run | None = None
    records: dict[int, dict[str, Any]] = field(default_factory=dict)
    changed: dict[int, list[str]] = field(default_factory=dict)
    difference: dict[str, Difference | None] = field(default_factory=dict)
    is_reference: bool = False

    def by_seed(self, metric: str) -> dict[int, float]:
        """Values of a metric such as ``czsl/auc`` by seed."""
        return {seed: record['metrics'][metric] for seed, record in self.records.items()
                if metric in record['metrics']}

    def number(self, metric: str, world: str) -> tuple[float, float | None] | None:
        """Mean and standard deviation, None without a value."""
        values = list(self.by_seed(f'{WORLDS[world]}/{metric}').values())
        return mean_and_std(values) if values else None


def row_runs(rows: Sequence[Row], dataset: str, configs: Any, seeds: Sequence[int],
             options: Sequence[str] = ()) -> dict[str, list[Run]]:
    """Runs of each row; one only where nothing is trained.

    Args:
        rows (Sequence[Row]): Rows with configs.
        dataset (str): Takes the place of ``{dataset}``.
        configs (Path): Folder of the configs.
        seeds (Sequence[int]): Seeds.
        options (Sequence[str]): Added to those of every row.

    Returns:
        dict[str, list[Run]]: By the name of the row.
    """
    runs = {}
    for row in rows:
        first = Run.make(configs / row.config_on(dataset),
                         (*row.options, *options), seeds[0])
        runs[row.name] = [first.with_seed(seed)
                          for seed in (seeds if first.learns else [0])]
    return runs


def summarise(table: Table, runs: Mapping[str, Sequence[Run]], store: Store,
              reference: str | None = None) -> list[Summary]:
    """Collects the records of a table.

    Args:
        table (Table): The table.
        runs (Mapping): Runs by the name of the row, see :func:`row_runs`.
        store (Store): The records.
        reference (str, optional): Row to compare with. Defaults to the table's own.

    Returns:
        list[Summary]: One a row, in the table's order.
    """
    summaries = []
    for row in table.rows:
        if row.config and row.name not in runs:
            continue
        summary = Summary(row, is_reference=row.name == (reference or table.reference))
        for run in runs.get(row.name, ()):
            summary.run = summary.run or run
            record, changes = store.find(run), store.changes(run)
            if changes:
                summary.changed[run.seed] = changes
            elif record is not None and f'{WORLDS[table.world]}/auc' in record['metrics']:
                summary.records[run.seed] = record
        summaries.append(summary)
    _compare(summaries)
    return summaries


def _compare(summaries: list[Summary]) -> None:
    base = next((summary for summary in summaries if summary.is_reference), None)
    for summary in summaries:
        if base is None or summary is base:
            continue
        for prefix in WORLDS.values():
            for metric in METRICS:
                key = f'{prefix}/{metric}'
                ours, theirs = _spread(summary, base, key), _spread(base, summary, key)
                summary.difference[key] = paired_difference(ours, theirs)


def _spread(summary: Summary, other: Summary, key: str) -> dict[int, float]:
    """Values by seed; what nothing random made counts for every seed of the other."""
    values = summary.by_seed(key)
    if values and summary.run is not None and not summary.run.learns:
        return dict.fromkeys(other.records, next(iter(values.values())))
    return values
