"""The report as HTML: reads a work folder, draws charts, and fills ``report.html.j2``."""
from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
from matplotlib import rc_context
from matplotlib.ticker import MaxNLocator

from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.hooks.console import OTHER_ROWS, PAPER_ROWS, ROWS, interval, measured
from mmcluspro.evaluation import ClassRow
from mmcluspro.utils.files import write_text
from mmcluspro.utils.plain_files import check_plain, read_json
from mmcluspro.version import __version__

from .confusion import OTHERS, Confusion
from .curve_plot import StoredCurve, read_curves
from .options import BRANCHES, names_of
from .prototypes import PrototypeImages, data_address
from .style import new_figure, print_style

HERE = Path(__file__).parent
COLUMNS = ('seen', 'unseen', 'hm', 'auc')
DELIVERED = (('predict/seen', 'seen pairs'), ('predict/unseen', 'unseen pairs'),
             ('predict/hm', 'harmonic mean, HM'))
REPORTED = (('czsl/hm', 'best HM'), ('czsl/auc', 'AUC'), ('czsl_open/auc', 'AUC, open world'))
TESTED = ('Accuracy on test images of seen and unseen pairs. mmcluspro predict uses one bias, '
          'chosen on validation, and chooses from all known pairs.')
CHECKED = {'czsl/hm': 'HM', 'czsl/auc': 'AUC', 'czsl_open/hm': 'HM, open world',
           'czsl_open/auc': 'AUC, open world'}
PRIMITIVES = 12  # of a branch, with their prototypes
LINES, POINTS = 7, 400  # of a chart; more are not told apart, or not seen
DASHES = ('-', '--', ':')
# Colours that no style uses → what the page makes of them, so that light and dark both work.
INK, RULE = '#010203', '#040506'
SHADES = {INK: 'var(--soft)', RULE: 'var(--line)', **{
    f'#0708{number:02x}': f'var(--c{number})' for number in range(LINES)}}
Points = list[tuple[float, float]]
MOST_BYTES = 1 << 28
LARGEST = 1e100  # beyond it, no axis can be drawn
REMEDY = 'Test the checkpoint once more with mmcluspro test, or remove the file.'


@dataclass
class RunFiles:
    """Content of a work folder; everything may be missing.

    Args:
        losses (dict[str, Points]): Iteration and value by the name of the loss.
        validations (dict[str, Points]): Epoch and percent by the name of the metric.
        metrics (dict[str, float]): Of the test.
        curves (dict[str, StoredCurve]): Of the test by world; of the last validation where there
            was no test.
    """
    losses: dict[str, Points] = field(default_factory=dict)
    validations: dict[str, Points] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    curves: dict[str, StoredCurve] = field(default_factory=dict)


def read_run(folder: str | Path) -> RunFiles:
    """Reads a work folder."""
    folder = Path(folder)
    found = RunFiles()
    losses: dict[str, dict[float, float]] = {}
    validations: dict[str, dict[float, float]] = {}
    # A resumed run has a folder per start; of an iteration that ran twice the later one counts.
    for path in sorted(folder.glob('*/vis_data/scalars.json')):
        check_plain(path, 'Remove the file: the report then has no losses.', MOST_BYTES)
        for line in path.read_text(encoding='utf-8', errors='replace').splitlines():
            _add_line(line, losses, validations)
    found.losses = {name: sorted(points.items()) for name, points in losses.items()}
    found.validations = {name: sorted(points.items()) for name, points in validations.items()}
    if (folder / 'test_metrics.json').is_file():
        found.metrics = numbers_of(read_json(folder / 'test_metrics.json', dict, REMEDY))
    for phase in ('test', 'val'):
        path = folder / f'{phase}_curve.json'
        if path.is_file():
            found.curves = read_curves(path)
            break
    return found


def numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among some values that can be drawn."""
    return {str(name): float(value) for name, value in values.items()
            if isinstance(value, (int, float)) and abs(value) <= LARGEST}


def _add_line(line: str, losses: dict[str, dict[float, float]],
              validations: dict[str, dict[float, float]]) -> None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):  # the last line of a run that was killed
        return
    numbers = numbers_of(values) if isinstance(values, dict) else {}
    step = numbers.get('step')
    if step is None:
        return
    if 'loss' in numbers:
        for name, value in numbers.items():
            if name == 'loss' or name.endswith('_loss'):
                losses.setdefault(name, {})[step] = value
    for name, value in numbers.items():
        if name.startswith('czsl'):
            validations.setdefault(name, {})[step] = value


@dataclass
class ShownCase:
    """A mistake.

    Args:
        picture (bytes): JPEG file.
        truth (tuple[str, str]): Attribute and object.
        answer (tuple[str, str]): What the model said.
        probability (float): Of the answer.
        seen (bool): Whether the true pair was seen in training.
    """
    picture: bytes
    truth: tuple[str, str]
    answer: tuple[str, str]
    probability: float
    seen: bool


@dataclass
class Report:
    """Content of a report; empty parts are left out.

    Args:
        title (str): Name of the run.
        commands (Sequence[str]): To type next. Defaults to ().
        facts (Sequence[tuple[str, str]]): Name and value: model, data, date and so on.
        notes (Sequence[str]): What is missing and why.
        run (RunFiles): What the work folder holds.
        tables (Mapping[str, Sequence[ClassRow]]): Accuracy by class, worst first.
        confusions (Mapping[str, Confusion]): By 'attributes', 'objects' and 'pairs'.
        cases (Sequence[ShownCase]): Mistakes, the most confident first.
        prototypes (PrototypeImages): Training images nearest to each prototype.
        space (CompositionSpace, optional): Names of the prototypes' primitives.
        offsets (Mapping): Rows of a bank by primitive, by branch.
    """
    title: str
    commands: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    run: RunFiles = field(default_factory=RunFiles)
    tables: Mapping[str, Sequence[ClassRow]] = field(default_factory=dict)
    confusions: Mapping[str, Confusion] = field(default_factory=dict)
    cases: Sequence[ShownCase] = ()
    prototypes: PrototypeImages = field(default_factory=PrototypeImages)
    space: CompositionSpace | None = None
    offsets: Mapping[str, Sequence[int]] = field(default_factory=dict)


def write_report(report: Report, path: str | Path) -> Path:
    """Writes the HTML file."""
    write_text(path, page(report))
    return Path(path)


def page(report: Report) -> str:
    """The whole file."""
    pages = jinja2.Environment(loader=jinja2.FileSystemLoader(HERE), autoescape=True,
                               undefined=jinja2.StrictUndefined)
    pages.globals['right_columns'] = _right_columns
    pages.filters.update(address=data_address, shown=lambda cell: f'{cell:.1f}' if isinstance(
        cell, float) else str(cell))
    metrics = report.run.metrics
    parts: dict[str, Any] = dict(
        numbers=_numbers(metrics), sure=_abstaining(metrics), charts=list(_charts(report.run)),
        worst=_classes(report.tables), matrices=[
            _matrix(kind, confusion) for kind, confusion in report.confusions.items()],
        prototypes=_prototypes(report))
    contents = [name for name, there in (
        ('Numbers', parts['numbers'] or parts['sure']), ('Curves', parts['charts']),
        ('Classes', parts['worst']), ('Confusions', parts['matrices']),
        ('Mistakes', report.cases), ('Prototypes', parts['prototypes']),
        ('Next', report.commands)) if there]
    delivered, reported = ([(metrics[key], words) for key, words in names if key in metrics]
                           for names in (DELIVERED, REPORTED))
    return pages.get_template('report.html.j2').render(
        parts, report=report, contents=contents, delivered=delivered, reported=reported,
        words=' '.join(measured(metrics) or [TESTED]), version=__version__,
        style=(HERE / 'report.css').read_text(encoding='utf-8'))


def _right_columns(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[bool]:
    """Which columns hold numbers, whose names stand at the right, too."""
    return [any(isinstance(row[place], (int, float)) for row in rows)
            for place in range(len(header))]


def _numbers(metrics: Mapping[str, float]) -> list[list[Any]]:
    """The table at the end of training."""
    rows: list[list[Any]] = []
    for title, prefix, suffix in (*ROWS, *PAPER_ROWS, *OTHER_ROWS):
        keys = [f'{prefix}/{name}{suffix}' for name in COLUMNS]
        if keys[0] in metrics:
            title = re.sub('^  ', '… ', title)
            rows.append([title[0].upper() + title[1:], *(metrics.get(key, '') for key in keys)])
        if len(rows) == 1 and 'interval/seen_low' in metrics:
            rows.append(['… 95 % interval', *(interval(metrics, name) for name in COLUMNS)])
    return rows


def _abstaining(metrics: Mapping[str, float]) -> list[list[Any]]:
    """What a threshold on the probability gives."""
    thresholds = [key.removeprefix('predict/coverage_at_') for key in metrics
                  if key.startswith('predict/coverage_at_')]
    return [[f'--threshold {each}', metrics[f'predict/coverage_at_{each}'],
             metrics.get(f'predict/accuracy_at_{each}', '')] for each in thresholds]


class Chart(NamedTuple):
    """A drawn chart, and the names of its lines for the legend."""
    svg: str
    names: list[str]


def _charts(run: RunFiles) -> Iterable[Chart]:
    """Losses, validations, and seen over unseen accuracy."""
    if run.losses:
        lines = {name.replace('_loss', ''): line for name, line in run.losses.items()}
        yield draw_chart(lines, 'iteration', 'loss', 'Losses of training')
    checked = {words: run.validations[key] for key, words in CHECKED.items()
               if len(run.validations.get(key, ())) > 1}
    if checked:
        yield draw_chart(checked, 'epoch', 'validation, percent', 'Validations')
    lines, best = {}, {}
    for world, (curve, auc, hm) in run.curves.items():
        name = f'{world} world: AUC {auc:.1f}, HM {hm:.1f}'
        lines[name] = list(zip(curve.unseen.tolist(), curve.seen.tolist()))
        best[name] = lines[name][int(np.argmax(curve.hm))]
    if lines:
        yield draw_chart(lines, 'unseen accuracy, percent', 'seen accuracy, percent',
                         'Seen over unseen accuracy', best)


def draw_chart(lines: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str,
               title: str, marks: Mapping[str, tuple[float, float]] | None = None) -> Chart:
    """A chart as SVG that takes its colours from the page.

    Args:
        lines (Mapping): Points (x, y) by name; the first seven are drawn.
        across (str): Words below.
        up (str): Words at the left.
        title (str): For people who do not see it.
        marks (Mapping, optional): A point by the name of its line. Defaults to None.
    """
    names = list(lines)[:LINES]
    with print_style(), rc_context({'svg.fonttype': 'none'}):
        figure = new_figure(4.8, 2.8, constrained=True)
        axes = figure.subplots()
        for number, name in enumerate(names):
            points = lines[name]
            kept = np.unique(np.linspace(0, len(points) - 1, POINTS).round().astype(int))
            x, y = zip(*(points[place] for place in kept))
            color = f'#0708{number:02x}'
            axes.plot(x, y, DASHES[number % len(DASHES)] if len(x) > 1 else 'o', color=color)
            if marks and name in marks:
                axes.plot(*marks[name], 'o', color=color)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlabel(across, color=INK)
        axes.set_ylabel(up, color=INK)
        axes.tick_params(colors=INK, length=0)
        axes.grid(color=RULE)
        for spine in axes.spines.values():
            spine.set_visible(False)
        file = io.StringIO()
        figure.savefig(file, format='svg', transparent=True, metadata=dict(Date=None))
    return Chart(_inline(file.getvalue(), title), names)


def _inline(svg: str, title: str) -> str:
    """An SVG file as a part of a page: no addresses, no style of its own, colours of the page."""
    svg = re.sub(r'<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->', '',
                 svg[svg.index('<svg'):], flags=re.DOTALL)
    box = re.search(r'viewBox="[^"]*"', svg)
    start = f'<svg {box[0] if box else ""} role="img" aria-label="{title}">'
    svg = re.sub(r'<svg[^>]*>', start, svg, count=1)
    for color, shade in SHADES.items():
        svg = svg.replace(color, shade)
    return svg


def _classes(tables: Mapping[str, Sequence[ClassRow]]) -> list[tuple[str, list[str], list]]:
    """Kind, header and rows of each table, worst first."""
    found = []
    for kind, rows in tables.items():
        pairs = kind == 'pairs'
        header = ['', *(['seen'] if pairs else []), 'images', 'right, %', 'probability, %',
                  'taken for']
        found.append((kind, header, [
            [row.name, *(['seen' if row.seen else 'unseen'] if pairs else []), row.images,
             row.accuracy, row.confidence, row.mistaken_for] for row in rows]))
    return found


def _matrix(kind: str, confusion: Confusion) -> dict[str, Any]:
    """The classes with most mistakes, in percent of the row."""
    classes = confusion.worst()
    counts = confusion.matrix(classes)
    names = [confusion.names[row] for row in classes]
    columns = [*names, OTHERS] if counts[:, -1].any() else names
    rows = []
    for number, (name, row) in enumerate(zip(names, counts)):
        shares = (row / row.sum())[:len(columns)].tolist()
        rows.append((name, int(row.sum()), [
            ('wrong' if place != number else 'right full' if share > 0.55 else 'right',
             round(100 * share ** 0.5), f'{100 * share:.0f}' if share >= 0.005 else '')
            for place, share in enumerate(shares)]))
    total = len(np.unique(confusion.truth))
    which = f', the {len(classes)} of {total} with most mistakes' if len(classes) < total else ''
    return dict(title=kind.capitalize() + which, columns=columns, rows=rows)


def _prototypes(report: Report) -> list[tuple[str, list]]:
    """Title and blocks of each branch; those with most different pictures say most."""
    parts: list[tuple[str, list]] = []
    space = report.space
    if space is None:
        return parts
    for branch, rows in report.prototypes.prototypes.items():
        starts, names = list(report.offsets[branch]), names_of(space, branch)
        owned = {index: [rows[row] for row in range(start, end) if row in rows]
                 for index, (start, end) in enumerate(zip(starts, starts[1:]))}
        several = sorted(owned, key=lambda index: -len({
            number for item in owned[index] for number in item.pictures}))[:PRIMITIVES]
        blocks = [(names[index], owned[index]) for index in sorted(several) if owned[index]]
        total = sum(end > start for start, end in zip(starts, starts[1:]))
        which = f' ({len(blocks)} of {total})' if len(blocks) < total else ''
        parts.append((f'{BRANCHES[branch].capitalize()}s{which}', blocks))
    return parts
