#!/usr/bin/env python
"""Tables and plots of docs/few_photographs.md and docs/which_method.md, from records of field.py.

    python tools/analysis_tools/field_table.py docs/results/few_photographs.jsonl \\
        --methods regressions before now --page docs/few_photographs.md \\
        --plot docs/images/few_photographs.png
    python tools/analysis_tools/field_table.py docs/results/field.jsonl \\
        --page docs/which_method.md --plot docs/images/field.png

With --methods, one table for each metric: a row for each set and size, a column for each method,
and the last method less the others. Without, one table for each set: a row for each method.
"""
import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from experiments import Difference, paired_difference
from experiments.readme import fill_page
from mmcluspro.engine.messages import run_command

NAMES = dict(regressions='two regressions', means='nearest class mean', compcos='CompCos',
             neighbours='nearest neighbours', oadis='OADis', now='`train photos/`',
             before='ClusPro, best epoch', frozen_dinov2_baseline='three-path baseline',
             frozen_dinov2_cluspro='ClusPro', frozen_dinov2_cluspro_plus='ClusPro+')
METRICS = dict(auc='AUC', hm='HM as delivered', seconds='Seconds of CPU')


def shown(gap: Difference | None, digits: int = 1) -> str:
    """A difference with its 95% interval, which needs two draws."""
    if gap is None:
        return '–'
    half = '' if gap.half_width is None else f' ± {gap.half_width:.{digits}f}'
    return f'{gap.mean:+.{digits}f}{half}'.replace('-', '−')


def difference(rows: pd.DataFrame, metric: str, one: str, other: str) -> Difference | None:
    """Paired over the draws of a set and size."""
    values = [rows[rows.method == name].set_index('draw')[metric].to_dict()
              for name in (one, other)]
    return paired_difference(*values)


def by_size(records: pd.DataFrame, metric: str, methods: Sequence[str]) -> str:
    """A row for each set and size; differences of the last method from the others."""
    last, others = methods[-1], methods[:-1]
    lines = [['photographs', 'draws', *(NAMES[name] for name in methods),
              *(f'{NAMES[last]} − {NAMES[name]}' for name in others)]]
    for (name, size), rows in records.groupby(['set', 'size']):
        mean = rows.groupby('method')[metric].mean()
        lines.append([f'{name}, {size}', str(rows[rows.method == last].draw.nunique()),
                      *(f'{mean[each]:.1f}' if each in mean else '–' for each in methods),
                      *(shown(difference(rows, metric, last, each)) for each in others)])
    return table(lines)


def by_method(rows: pd.DataFrame, reference: str) -> str:
    """A row for each method, the best one first; differences from a reference."""
    lines = [['method', 'draws', *METRICS.values(), f'AUC − {NAMES[reference]}']]
    for name in rows.groupby('method').auc.mean().sort_values(ascending=False).index:
        own = rows[rows.method == name]
        gap = difference(rows, 'auc', name, reference)
        lines.append([NAMES[name], str(len(own)), *(f'{own[key].mean():.1f}' for key in METRICS),
                      'reference' if name == reference else shown(gap, 2)])
    return table(lines)


def table(lines: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    rows = ['| ' + ' | '.join(line) + ' |' for line in lines]
    return '\n'.join([rows[0], '|---' * len(lines[0]) + '|', *rows[1:]])


def plot(records: pd.DataFrame, path: Path, methods: Sequence[str]) -> None:
    """AUC against the number of photographs, or against seconds where there is one size."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    sets = sorted(records.set.unique())
    figure, panels = pyplot.subplots(1, len(sets), figsize=(max(5, 3 * len(sets)), 3.2),
                                     squeeze=False)
    for panel, name in zip(panels[0], sets):
        rows = records[records.set == name]
        axis = 'size' if rows['size'].any() else 'seconds'
        for method in methods:
            own = rows[rows.method == method]
            points = own.groupby('size')[[axis, 'auc']].mean() if axis == 'seconds' else (
                own.groupby('size', as_index=False).auc.mean())
            panel.plot(points[axis], points.auc, marker='o',
                       label=NAMES[method].replace('`', ''))
        panel.set(title=name, ylabel='AUC',
                  xlabel='photographs to train' if axis == 'size' else 'seconds of CPU')
    panels[0][-1].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('records', type=Path, help='lines of field.py')
    parser.add_argument('--methods', nargs='+', choices=NAMES, help='columns')
    parser.add_argument('--reference', choices=NAMES, default='frozen_dinov2_baseline',
                        help='default: frozen_dinov2_baseline')
    parser.add_argument('--plot', type=Path, help='write the plot to this file')
    parser.add_argument('--page', type=Path, help='write the tables between <!-- NAME --> and '
                        '<!-- /NAME --> of this page, NAME as the file of the records')
    args = parser.parse_args()
    records = pd.read_json(args.records, lines=True)
    if args.methods:
        tables = {title: by_size(records, metric, args.methods)
                  for metric, title in METRICS.items()}
    else:
        tables = {name: by_method(rows, args.reference) for name, rows in records.groupby('set')}
    text = '\n\n'.join(f'{title}:\n\n{each}' for title, each in tables.items())
    print(text)
    if args.page and not fill_page(args.page, {args.records.stem: text}):
        raise ValueError(f'{args.page} has no <!-- {args.records.stem} --> to fill.')
    if args.plot:
        plot(records, args.plot, args.methods or list(records.method.unique()))


if __name__ == '__main__':
    run_command(main)
