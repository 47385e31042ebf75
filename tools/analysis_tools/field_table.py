#!/usr/bin/env python
"""Tables and the plot of docs/few_photographs.md, from the records of few_photographs.py.

    python tools/analysis_tools/few_photographs_table.py docs/results/few_photographs.jsonl \\
        --plot docs/images/few_photographs.png
"""
import argparse
import json
from collections import defaultdict
from pathlib import Path

from experiments import mean_and_std, paired_difference
from mmcluspro.engine.messages import run_command

NAMES = dict(regressions='two regressions', before='before', now='now')
Cells = dict[tuple[str, int], dict[str, dict[int, dict]]]


def read_cells(path: Path) -> Cells:
    """Records by set and size, method and draw."""
    cells: Cells = defaultdict(lambda: defaultdict(dict))
    for record in map(json.loads, path.read_text().splitlines()):
        cells[record['set'], record['size']][record['method']][record['draw']] = record
    return {key: dict(methods) for key, methods in sorted(cells.items()) if 'now' in methods}


def values(records: dict[int, dict], metric: str) -> dict[int, float]:
    """A metric by draw."""
    return {draw: record[metric] for draw, record in records.items()}


def table(cells: Cells, metric: str) -> str:
    """Means over the draws, and paired differences with their 95% intervals."""
    lines = [f'| photographs | draws | {" | ".join(NAMES.values())} | now − two regressions | '
             'now − before |', '|---|---|---|---|---|---|---|']
    for (name, size), methods in cells.items():
        row = [f'{name}, {size}', str(len(methods['now']))]
        row += [f'{mean_and_std(list(values(methods[method], metric).values()))[0]:.1f}'
                if methods.get(method) else '–' for method in NAMES]
        for rival in ('regressions', 'before'):
            gap = paired_difference(values(methods['now'], metric),
                                    values(methods.get(rival, {}), metric))
            half = '' if gap is None or gap.half_width is None else f' ± {gap.half_width:.1f}'
            row.append('–' if gap is None else f'{gap.mean:+.1f}{half}')
        lines.append('| ' + ' | '.join(row) + ' |')
    return '\n'.join(lines)


def plot(cells: Cells, path: Path) -> None:
    """AUC against the number of photographs, one panel for each set."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    sets = sorted({name for name, _ in cells})
    figure, panels = pyplot.subplots(1, len(sets), figsize=(3 * len(sets), 3), squeeze=False)
    for panel, name in zip(panels[0], sets):
        for method, label in NAMES.items():
            points = [(size, mean_and_std(list(values(methods[method], 'auc').values()))[0])
                      for (each, size), methods in cells.items()
                      if each == name and methods.get(method)]
            if points:
                panel.plot(*zip(*points), label=label, marker='o')
        panel.set(title=name, xlabel='photographs to train', ylabel='AUC',
                  xticks=sorted({size for each, size in cells if each == name}))
    panels[0][0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('records', type=Path, help='lines of few_photographs.py')
    parser.add_argument('--plot', type=Path, help='write the plot to this file')
    args = parser.parse_args()
    cells = read_cells(args.records)
    for metric, title in (('auc', 'AUC'), ('hm', 'HM as delivered'), ('seconds', 'Seconds of CPU')):
        print(f'{title}:\n\n{table(cells, metric)}\n')
    if args.plot:
        plot(cells, args.plot)


if __name__ == '__main__':
    run_command(main)
