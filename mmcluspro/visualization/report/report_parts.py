"""The sections of a report as HTML; every name is escaped."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from mmcluspro.artefact.prototype_images import PrototypeImages, ShownPrototype
from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.hooks.console_text import interval
from mmcluspro.evaluation import ClassRow
from mmcluspro.visualization.confusion import OTHERS, Confusion
from mmcluspro.visualization.primitives import BRANCHES, names_of

from .run_history import RunFiles
from .svg_chart import line_chart

ROWS = (('As predict will answer', 'predict', ''),
        ('… with --prefer seen', 'predict', '_prefer_seen'),
        ('… with --prefer unseen', 'predict', '_prefer_unseen'),
        ('As papers report it', 'czsl', ''), ('… in the open world', 'czsl_open', ''),
        ('Two logistic regressions', 'regressions', ''))
COLUMNS = ('seen', 'unseen', 'hm', 'auc')
SHOWN = 12  # rows of a table before "all"
PRIMITIVES = 12  # of a branch, with their prototypes


def section(title: str, *parts: str) -> str:
    """A titled section, empty where all parts are."""
    body = ''.join(parts)
    return f'<section><h2>{escape(title)}</h2>{body}</section>' if body else ''


def table(header: Sequence[str], rows: Iterable[Sequence[object]], kind: str = '') -> str:
    """Cells are escaped; the first column is a header, numbers stand at the right."""
    lines = list(rows)
    # A column of numbers has its name at the right, too.
    right = [any(isinstance(line[place], (int, float)) for line in lines)
             for place in range(len(header))]
    head = ''.join(f'<th scope="col"{" class=number" if number else ""}>{escape(name)}</th>'
                   for name, number in zip(header, right))
    body = ''.join('<tr>' + ''.join(
        f'<th scope="row">{escape(str(cell))}</th>' if place == 0 else
        f'<td{" class=number" if isinstance(cell, (int, float)) else ""}>{_cell(cell)}</td>'
        for place, cell in enumerate(row)) + '</tr>' for row in lines)
    return (f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>'
            f'<tbody>{body}</tbody></table></div>')


def _cell(cell: object) -> str:
    return f'{cell:.1f}' if isinstance(cell, float) else escape(str(cell))


def cards(metrics: Mapping[str, float]) -> str:
    """The numbers that matter most."""
    names = (('predict/seen', 'seen pairs right'), ('predict/unseen', 'unseen pairs right'),
             ('predict/hm', 'harmonic mean'), ('czsl/auc', 'AUC'), ('czsl_open/auc', 'AUC, open'))
    return '<ul class="cards">' + ''.join(
        f'<li><b>{metrics[key]:.1f}</b> {escape(words)}</li>' for key, words in names
        if key in metrics) + '</ul>'


def numbers(metrics: Mapping[str, float]) -> str:
    """The table at the end of training, and what abstaining gives."""
    rows: list[list[object]] = []
    for title, prefix, suffix in ROWS:
        keys = [f'{prefix}/{name}{suffix}' for name in COLUMNS]
        if keys[0] in metrics:
            rows.append([title, *(metrics.get(key, '') for key in keys)])
        if not rows[1:] and 'interval/seen_low' in metrics:
            rows.append(['… 95 % interval', *(interval(metrics, name) for name in COLUMNS)])
    sure: list[list[object]] = []
    for key, coverage in metrics.items():
        prefix, _, threshold = key.partition('coverage_at_')
        if prefix == 'predict/':
            sure.append([f'--threshold {threshold}', coverage,
                         metrics.get(f'predict/accuracy_at_{threshold}', '')])
    parts = [table(('percent', 'seen', 'unseen', 'HM', 'AUC'), rows)] if rows else []
    if sure:
        parts.append(table(('abstaining', 'answered, %', 'of these right, %'), sure))
    return beside(parts)


def beside(parts: Iterable[str]) -> str:
    """Blocks side by side where there is room."""
    return '<div class="beside">' + ''.join(f'<div>{part}</div>' for part in parts) + '</div>'


def charts(run: RunFiles) -> str:
    """Losses, validations, and seen over unseen accuracy."""
    parts = []
    if run.losses:
        lines = {name.replace('_loss', ''): line for name, line in list(run.losses.items())[:7]}
        parts.append(line_chart(lines, 'iteration', 'loss', 'Losses of training'))
    names = {'czsl/hm': 'HM', 'czsl/auc': 'AUC', 'czsl_open/hm': 'HM, open world',
             'czsl_open/auc': 'AUC, open world'}
    checked = {words: run.validations[key] for key, words in names.items()
               if len(run.validations.get(key, ())) > 1}
    if checked:
        parts.append(line_chart(checked, 'epoch', 'validation, percent', 'Validations'))
    if run.curves:
        lines, marks = {}, {}
        for world, stored in run.curves.items():
            name = f'{world} world: AUC {stored.auc:.1f}, HM {stored.hm:.1f}'
            points = list(zip(stored.curve.unseen.tolist(), stored.curve.seen.tolist()))
            lines[name], marks[name] = points, points[int(np.argmax(stored.curve.hm))]
        parts.append(line_chart(lines, 'unseen accuracy, percent', 'seen accuracy, percent',
                                'Seen over unseen accuracy', marks))
    return f'<div class="charts">{"".join(parts)}</div>' if parts else ''


def worst(tables: Mapping[str, Sequence[ClassRow]]) -> str:
    """The worst classes, all of them on a click."""
    parts = []
    for kind, rows in tables.items():
        header = ('', *(('seen',) if kind == 'pairs' else ()), 'images', 'right, %',
                  'probability, %', 'taken for')
        cells = [[row.name, *(('seen' if row.seen else 'unseen',) if kind == 'pairs' else ()),
                  row.images, row.accuracy, row.confidence, row.mistaken_for] for row in rows]
        more = (f'<details><summary>All {len(rows)} {escape(kind)}</summary>'
                f'{table(header, cells)}</details>' if len(rows) > SHOWN else '')
        parts.append(f'<h3>{escape(kind.capitalize())}, worst first</h3>'
                     + table(header, cells[:SHOWN]) + more)
    return beside(parts) if parts else ''


def confusion_table(kind: str, confusion: Confusion) -> str:
    """A matrix of the classes with most mistakes, percent of the row."""
    classes = confusion.worst()
    counts = confusion.matrix(classes)
    names = [confusion.names[row] for row in classes]
    if counts[:, -1].any():
        columns = [*names, OTHERS]
    else:
        columns, counts = names, counts[:, :-1]
    head = ''.join(f'<th scope="col"><span>{escape(name)}</span></th>' for name in columns)
    body = []
    for number, (name, row) in enumerate(zip(names, counts)):
        cells = []
        for place, share in enumerate(row / row.sum()):
            kind_of = 'wrong' if place != number else 'right full' if share > 0.55 else 'right'
            style = (f' class="{kind_of}" '
                     f'style="--part:{round(100 * float(share) ** 0.5)}%"') if share else ''
            cells.append(f'<td{style}>{f"{100 * share:.0f}" if share >= 0.005 else ""}</td>')
        body.append(f'<tr><th scope="row">{escape(name)} <small>{int(row.sum())}</small></th>'
                    f'{"".join(cells)}</tr>')
    total = len(np.unique(confusion.truth))
    which = f', the {len(classes)} of {total} with most mistakes' if len(classes) < total else ''
    return (f'<h3>{escape(kind.capitalize())}{which}</h3><div class="scroll">'
            f'<table class="matrix"><thead><tr><td></td>{head}</tr></thead>'
            f'<tbody>{"".join(body)}</tbody></table></div>')


def prototypes(found: PrototypeImages, space: CompositionSpace,
               offsets: Mapping[str, Sequence[int]]) -> str:
    """Rows of training images, one per prototype.

    Args:
        found (PrototypeImages): What to show.
        space (CompositionSpace): For the names.
        offsets (Mapping): By branch: which rows of a bank belong to a primitive.
    """
    parts = []
    for branch, rows in found.prototypes.items():
        starts, names = list(offsets[branch]), names_of(space, branch)
        owned = {index: [rows[row] for row in range(start, end) if row in rows]
                 for index, (start, end) in enumerate(zip(starts, starts[1:]))}
        # Those with most different pictures say most.
        several = sorted(owned, key=lambda index: -len({
            number for item in owned[index] for number in item.pictures}))[:PRIMITIVES]
        blocks = [_primitive(names[index], owned[index], found) for index in sorted(several)
                  if owned[index]]
        total = sum(1 for start, end in zip(starts, starts[1:]) if end > start)
        which = f' ({len(blocks)} of {total})' if len(blocks) < total else ''
        parts.append(f'<h3>{BRANCHES[branch].capitalize()}s{which}</h3>'
                     f'<div class="prototypes">{"".join(blocks)}</div>')
    return ''.join(parts)


def _primitive(name: str, shown: Sequence[ShownPrototype], found: PrototypeImages) -> str:
    lines = []
    for item in shown:
        words = 'dead' if item.dead else f'{item.share:.0%}'
        pictures = ''.join(f'<img src="{found.address(number)}" alt="">'
                           for number in item.pictures)
        lines.append(f'<li class="{"dead" if item.dead else ""}"><span>{words}</span>'
                     f'{pictures}</li>')
    return f'<div><h4>{escape(name)}</h4><ol>{"".join(lines)}</ol></div>'
