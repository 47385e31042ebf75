"""A table as a picture: our AUC by row, the paired differences, the paper's AUC."""
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mmcluspro.visualization.style import save

from .summary import Summary
from .tables import DATASETS, WORLDS, Table

OURS, GAP, PAPER = '#0072b2', '#d55e00', '#555555'  # told apart also by the colour-blind


def plot_table(table: Table, summaries: Sequence[Summary], dataset: str,
               path: str | Path) -> None:
    """Draws a table.

    Args:
        table (Table): The table.
        summaries (Sequence[Summary]): Its rows; those without a run are left out.
        dataset (str): Where they were run.
        path (str | Path): Without ending: PNG and SVG are written.
    """
    shown = [summary for summary in summaries if summary.records]
    theirs = table.paper_dataset(dataset)
    panels = [_ours]
    if any(summary.difference.get(_metric(table)) for summary in shown):
        panels.append(_gaps)
    if any(theirs in summary.row.paper for summary in shown):
        panels.append(_paper)
    figure = Figure(figsize=(2.2 + 3.6 * len(panels), 1.8 + 0.45 * len(shown)), dpi=150,
                    layout='constrained')
    FigureCanvasAgg(figure)  # never opens a window, whatever the default backend is
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, draw in zip(grid, panels):
        draw(axes, table, shown, dataset)
        axes.grid(axis='x', alpha=0.3)
        axes.tick_params(labelsize=11)
        axes.margins(x=0.15)
    grid[0].set_yticks(range(len(shown)), [summary.row.name for summary in shown])
    grid[0].set_ylim(len(shown) - 0.5, -0.5)
    figure.suptitle(f'{table.label}: {table.title}', fontsize=13)
    save(figure, path)


def _metric(table: Table) -> str:
    return f'{WORLDS[table.world]}/auc'


def _ours(axes: Axes, table: Table, shown: Sequence[Summary], dataset: str) -> None:
    for place, summary in enumerate(shown):
        values = list(summary.by_seed(_metric(table)).values())
        number = summary.number('auc', table.world)
        if number is not None:
            axes.plot(values, [place + 0.18] * len(values), '.', color=OURS, alpha=0.5)
            axes.errorbar(number[0], place, xerr=number[1] or 0.0, fmt='o', color=OURS, capsize=4)
    axes.set_xlabel(f'AUC on {DATASETS[dataset]}, {table.world} world (%)\n'
                    'mean ± standard deviation, dots: seeds', fontsize=11)


def _gaps(axes: Axes, table: Table, shown: Sequence[Summary], dataset: str) -> None:
    reference = next(summary.row.name for summary in shown if summary.is_reference)
    for place, summary in enumerate(shown):
        gap = summary.difference.get(_metric(table))
        if gap is not None:
            axes.errorbar(gap.mean, place, xerr=gap.half_width or 0.0, fmt='D', color=GAP,
                          capsize=4)
    axes.axvline(0, color='black', linewidth=1)
    axes.set_xlabel(f'difference to {reference}\npaired by seed, 95% interval', fontsize=11)


def _paper(axes: Axes, table: Table, shown: Sequence[Summary], dataset: str) -> None:
    theirs = table.paper_dataset(dataset)
    for place, summary in enumerate(shown):
        if theirs in summary.row.paper:
            axes.plot(summary.row.paper[theirs][3], place, 's', color=PAPER)
    axes.set_xlabel(f"the paper's AUC on {DATASETS[theirs]},\n{table.world} world (%)",
                    fontsize=11)
