"""A table as Markdown, CSV, LaTeX and pictures, the paper's row beside ours."""
from collections.abc import Sequence
from pathlib import Path

from mmcluspro.utils.plain_files import csv_text

from .statistics import Difference
from .summary import Summary
from .tables import DATASETS, METRICS, SPLITS, WORLDS, Table

HEADS = dict(seen='seen', unseen='unseen', hm='HM', auc='AUC')
LATEX = {'&': r'\&', '%': r'\%', '_': r'\_', '#': r'\#', '±': r'$\pm$', '−': '$-$', 'μ': r'$\mu$',
         'α': r'$\alpha$', 'β': r'$\beta$', '–': '--', '×': r'$\times$'}


def plus_minus(number: tuple[float, float | None] | None) -> str:
    """For example '49.9 ± 0.7'; a dash without a value."""
    if number is None:
        return '–'
    mean, std = number
    return f'{mean:.1f}' if std is None else f'{mean:.1f} ± {std:.1f}'


def signed(difference: Difference | None) -> str:
    """For example '+1.2 ± 0.4'."""
    if difference is None:
        return '–'
    sign = '−' if difference.mean < 0 else '+'
    half = '' if difference.half_width is None else f' ± {difference.half_width:.1f}'
    return f'{sign}{abs(difference.mean):.1f}{half}'


def state(summary: Summary, seeds: Sequence[int]) -> str:
    """How many runs a row has, in words where that is not all."""
    if summary.run is None:
        return 'paper only'
    wanted = len(seeds) if summary.run.learns else 1
    found = len(summary.records)
    if summary.changed:
        return f'{found} of {wanted}, {len(summary.changed)} of another config'
    if found < wanted:
        return f'{found} of {wanted}' if found else 'not yet run'
    return str(found) if summary.run.learns else '1, nothing is random'


def cells(table: Table, summaries: Sequence[Summary], dataset: str,
          seeds: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table as texts.

    Args:
        table (Table): The table.
        summaries (Sequence[Summary]): Its rows.
        dataset (str): Where they were run.
        seeds (Sequence[int]): Seeds that were asked for.

    Returns:
        tuple: Head and rows.
    """
    theirs = table.paper_dataset(dataset)
    reference = next((s.row.name for s in summaries if s.is_reference), 'reference')
    head = ['', 'runs', *HEADS.values(), f'AUC − {reference}, paired']
    if table.printed:
        head.append(f'paper, {DATASETS[theirs]}: ' + ' / '.join(HEADS.values()))
    body = []
    for summary in summaries:
        if summary.run is None and theirs != dataset:
            continue
        numbers = [plus_minus(summary.number(metric, table.world)) for metric in METRICS]
        gap = 'reference' if summary.is_reference else signed(
            summary.difference.get(f'{WORLDS[table.world]}/auc'))
        printed = summary.row.paper.get(theirs)
        paper = ' / '.join(f'{value:.1f}' for value in printed) if printed else '–'
        body.append([summary.row.name, state(summary, seeds), *numbers, gap,
                     *([paper] if table.printed else [])])
    return head, body


def epoch_rule(summaries: Sequence[Summary]) -> str:
    """Which epoch was tested, in a sentence; empty without trainings."""
    counts = {len(record['val_auc']) > 1 for summary in summaries
              for record in summary.records.values() if record.get('val_auc')}
    if not counts:
        return ''
    if counts == {False}:
        return ' The last epoch is tested.'
    if counts == {True}:
        return ' The epoch that is best on validation is tested.'
    return ' Some runs are tested after their last epoch, others after the best on validation.'


def caption(table: Table, summaries: Sequence[Summary], dataset: str,
            seeds: Sequence[int]) -> str:
    """What the table is, in a sentence or two."""
    commits = sorted({record.get('commit', 'unknown') for summary in summaries
                      for record in summary.records.values()})
    column = 'last column but one' if table.printed else 'last column'
    spread = (f'mean ± standard deviation over seeds {seeds[0]} to {seeds[-1]}; the {column} '
              'is the mean difference seed by seed ± half its 95% t-interval.'
              if len(seeds) > 1 else f'seed {seeds[0]} alone.')
    split = f' of {SPLITS[dataset]}' if dataset in SPLITS else ''
    text = (f'{table.label}. {table.title}, on {DATASETS[dataset]}, test split{split}, '
            f'{table.world} world, in percent: {spread}')
    text += epoch_rule(summaries)
    if commits:
        text += f' Commit {", ".join(commits)}.'
    if any(summary.run and not summary.records for summary in summaries):
        text += ' Rows without numbers are not yet run'
        here = dataset.startswith(('shapes', 'fashion'))
        text += '.' if here else ': that needs the data and a GPU.'
    return text + (f' {table.note}' if table.note else '')


def markdown(table: Table, summaries: Sequence[Summary], dataset: str,
             seeds: Sequence[int]) -> str:
    """The table for a page, the caption above."""
    head, body = cells(table, summaries, dataset, seeds)
    lines = [caption(table, summaries, dataset, seeds), '',
             '| ' + ' | '.join(head) + ' |', '|---' * len(head) + '|']
    return '\n'.join([*lines, *('| ' + ' | '.join(row) + ' |' for row in body)]) + '\n'


def latex(table: Table, summaries: Sequence[Summary], dataset: str, seeds: Sequence[int]) -> str:
    """The table for a paper; needs no packages."""
    def escape(text: str) -> str:
        return ''.join(LATEX.get(letter, letter) for letter in text)
    head, body = cells(table, summaries, dataset, seeds)
    rows = [' & '.join(map(escape, row)) + r' \\' for row in body]
    return '\n'.join([
        r'\begin{table}', r'\centering',
        rf'\caption{{{escape(caption(table, summaries, dataset, seeds))}}}',
        rf'\begin{{tabular}}{{l{"c" * (len(head) - 1)}}}', r'\hline',
        ' & '.join(map(escape, head)) + r' \\', r'\hline', *rows, r'\hline',
        r'\end{tabular}', r'\end{table}', ''])


def table_csv(table: Table, summaries: Sequence[Summary], dataset: str) -> str:
    """Every number in full, closed and open world, one line a row."""
    theirs = table.paper_dataset(dataset)
    names = [f'{world}_{metric}' for world in WORLDS for metric in METRICS]
    rows: list[list[object]] = [[
        'table', 'dataset', 'row', 'config', 'options', 'seeds',
        *(f'{name}_{part}' for name in names for part in (
            'mean', 'std', 'difference', 'difference_half_width')),
        *(f'paper_{theirs}_{metric}' for metric in METRICS)]]
    for summary in summaries:
        numbers: list[float | None] = []
        for world, prefix in WORLDS.items():
            for metric in METRICS:
                gap = summary.difference.get(f'{prefix}/{metric}')
                numbers += summary.number(metric, world) or (None, None)
                numbers += (gap.mean, gap.half_width) if gap else (None, None)
        run, printed = summary.run, summary.row.paper.get(theirs, [])
        rows.append([
            table.key, dataset, summary.row.name, run.config.name if run else '',
            ' '.join(run.options) if run else '', ' '.join(map(str, sorted(summary.records))),
            *numbers, *printed, *[None] * (len(METRICS) - len(printed))])
    return csv_text(rows)


def write_report(table: Table, summaries: Sequence[Summary], dataset: str, seeds: Sequence[int],
                 folder: str | Path) -> Path:
    """Writes ``<table>_<dataset>.md``, ``.csv``, ``.tex``, ``.png`` and ``.svg``.

    Args:
        table (Table): The table.
        summaries (Sequence[Summary]): Its rows.
        dataset (str): Where they were run.
        seeds (Sequence[int]): Seeds that were asked for.
        folder (str | Path): Made when it is not there.

    Returns:
        Path: The Markdown file.
    """
    stem = Path(folder) / f'{table.key}_{dataset}'
    stem.parent.mkdir(parents=True, exist_ok=True)
    texts = dict(md=markdown(table, summaries, dataset, seeds),
                 tex=latex(table, summaries, dataset, seeds),
                 csv=table_csv(table, summaries, dataset))
    for ending, text in texts.items():
        stem.with_suffix(f'.{ending}').write_text(text, encoding='utf-8')
    if any(summary.records for summary in summaries):
        from .plot import plot_table
        plot_table(table, summaries, dataset, stem)
    return stem.with_suffix('.md')
