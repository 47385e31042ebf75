"""Keeps the tables of a page up to date: rows, commands, the paper's numbers, ours on Shapes."""
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .run_store import Store
from .summary import Summary, row_runs, summarise
from .table_report import HEADS, markdown, plus_minus, signed, state
from .tables import DATASETS, METRICS, WORLDS, Table

PUBLISHED = ('mitstates', 'utzappos', 'cgqa')


def _ours(summary: Summary, world: str) -> str:
    numbers = [summary.number(metric, world) for metric in METRICS]
    if numbers[0] is None:
        return 'not yet run'
    text = ' / '.join(plus_minus(number) for number in numbers)
    return f'{text} ({len(summary.records)} {"run" if len(summary.records) == 1 else "runs"})'


def overview(table: Table, summaries: Sequence[Summary]) -> str:
    """Rows of a table with their commands, all datasets beside each other.

    Args:
        table (Table): The table.
        summaries (Sequence[Summary]): Its rows on Shapes, or without runs.

    Returns:
        str: Markdown.
    """
    known = {summary.row.name: summary for summary in summaries}
    papers = [name for name in PUBLISHED if name in table.datasets]
    shapes = 'shapes' in table.datasets
    head = ['row', 'config and options', *(f'paper, {DATASETS[name]}' for name in papers)]
    if shapes:
        head += ['ours, Shapes', f'ours, AUC − {table.reference}, paired']
    lines = ['| ' + ' | '.join(head) + ' |', '|---' * len(head) + '|']
    for row in table.rows:
        if not row.config:
            continue
        words = [row.config.replace('{dataset}', '…'), *map(shlex.quote, row.options)]
        cells = [row.name, f'`{" ".join(words)}`' + (
            f' or `{row.file.replace("{dataset}", "…")}`' if row.file else '')]
        cells += [' / '.join(f'{value:.1f}' for value in row.paper[name])
                  if name in row.paper else '–' for name in papers]
        if shapes:
            summary = known.get(row.name, Summary(row))
            gap = summary.difference.get(f'{WORLDS[table.world]}/auc')
            cells += [_ours(summary, table.world),
                      'reference' if row.name == table.reference else signed(gap)]
        lines.append('| ' + ' | '.join(cells) + ' |')
    names = ', '.join(DATASETS[name] for name in papers)
    lines += ['', f'{" / ".join(HEADS.values())}, {table.world} world. Ours on {names}: not yet '
              'run: needs the data and a GPU.']
    return '\n'.join(lines)


def results(table: Table, summaries: Sequence[Summary]) -> str:
    """What we measured on Shapes, both worlds in a row.

    Args:
        table (Table): The table.
        summaries (Sequence[Summary]): Its rows on Shapes.

    Returns:
        str: Markdown.
    """
    columns = [*((metric, 'closed') for metric in METRICS), ('hm', 'open'), ('auc', 'open')]
    names = [('' if world == 'closed' else 'open-world ') + HEADS[metric]
             for metric, world in columns]
    head = ['method', 'runs', *names, f'AUC − {table.reference}, paired']
    lines = ['| ' + ' | '.join(head) + ' |', '|---' * len(head) + '|']
    for summary in summaries:
        if summary.run is None:
            continue
        gap = summary.difference.get(f'{WORLDS[table.world]}/auc')
        cells = [summary.row.name, state(summary, list(summary.records) or [0]),
                 *(plus_minus(summary.number(metric, world)) for metric, world in columns),
                 'reference' if summary.is_reference else signed(gap)]
        lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)


def seeds_of(summaries: Sequence[Summary]) -> list[int]:
    """All seeds that some row of a table has, at least [0]."""
    return sorted({seed for summary in summaries for seed in summary.records}) or [0]


def page_blocks(tables: Iterable[Table], store: Store, configs: Path,
                counts: Mapping[str, int] | None = None) -> dict[str, str]:
    """:func:`overview` of tables, with all seeds that have records.

    Args:
        tables (Iterable[Table]): Tables.
        store (Store): Records.
        configs (Path): Folder of the configs.
        counts (Mapping[str, int], optional): Runs to use by the name of a row, the first seeds
            that have records. Defaults to None, all.

    Returns:
        dict[str, str]: Markdown by the key of the table; ``<key>_shapes``,
        ``<key>_shapes_large`` and ``<key>_fashion`` are :func:`markdown` of that dataset,
        ``results`` is Table 1 in short, both worlds.
    """
    seeds = sorted({seed for _, _, seed in store.records}) or [0]
    blocks = {}
    for table in tables:
        summaries: list[Summary] = []
        for dataset in ('fashion', 'shapes_large', 'shapes'):
            if dataset not in table.datasets:
                continue
            runs = row_runs(table.pick(None), dataset, configs, seeds)
            if counts is not None:
                runs = {name: [run for run in own if store.find(run) and not store.changes(run)][
                    :counts.get(name, 0)] or own[:1] for name, own in runs.items()}
            summaries = summarise(table, runs, store)
            blocks[f'{table.key}_{dataset}'] = markdown(
                table, summaries, dataset, seeds_of(summaries)).rstrip()
        blocks[table.key] = overview(table, summaries)
        if table.key == 'table1':
            blocks['results'] = results(table, summaries)
    return blocks


def printed_counts(block: str) -> dict[str, int]:
    """The number of runs of each row in a block that :func:`page_blocks` made."""
    lines = [[cell.strip() for cell in line.strip('|').split('|')]
             for line in block.splitlines() if line.startswith('| ')]
    counts = {}
    for name, *cells in lines[1:]:
        found = re.search(r'\((\d+) runs?\)', ' '.join(cells)) or re.match(
            r'(\d+)\b', cells[0])  # of an overview, or of the short table
        counts[name] = int(found[1]) if found else 0
    return counts


def fill_page(path: str | Path, blocks: dict[str, str]) -> list[str]:
    """Replaces what stands between ``<!-- name -->`` and ``<!-- /name -->``.

    Args:
        path (str | Path): Markdown file.
        blocks (dict[str, str]): New text by name.

    Returns:
        list[str]: Names that the page has.
    """
    path = Path(path)
    text, filled = path.read_text(encoding='utf-8'), []
    for name, block in blocks.items():
        found = re.search(rf'<!-- {name} -->\n(.*?)<!-- /{name} -->', text, re.DOTALL)
        if found:
            filled.append(name)
            text = f'{text[:found.start(1)]}{block}\n{text[found.end(1):]}'
    path.write_text(text, encoding='utf-8')
    return filled
