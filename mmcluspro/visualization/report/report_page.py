"""The report: one HTML file that needs nothing else, no script and no network."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from mmcluspro.artefact.prototype_images import PrototypeImages, data_address
from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.hooks.console_text import measured
from mmcluspro.evaluation import ClassRow
from mmcluspro.utils.files import write_text
from mmcluspro.version import __version__
from mmcluspro.visualization.confusion import Confusion
from mmcluspro.visualization.report import report_parts as parts

from .run_history import RunFiles

TESTED = ('Accuracy on test images of seen and unseen pairs. mmcluspro predict uses one bias, '
          'chosen on validation, and chooses from all known pairs.')
PAPERS = ('Papers report the best value of each column over all biases, among the pairs of the '
          'test.')
STYLE = Path(__file__).with_name('report.css')


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
        images (int): How many were tested. Defaults to 0.
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
    images: int = 0
    prototypes: PrototypeImages = field(default_factory=PrototypeImages)
    space: CompositionSpace | None = None
    offsets: Mapping[str, Sequence[int]] = field(default_factory=dict)


def write_report(report: Report, path: str | Path) -> Path:
    """Writes the HTML file."""
    write_text(path, page(report))
    return Path(path)


def page(report: Report) -> str:
    """The whole file."""
    body = [
        _header(report),
        parts.section('Numbers', _words(' '.join(measured(report.run.metrics) or [TESTED])
                                        + ' ' + PAPERS), parts.numbers(report.run.metrics))
        if report.run.metrics else '',
        parts.section('Curves', parts.charts(report.run)),
        parts.section('Worst classes', parts.worst(report.tables)),
        parts.section('Confusions', _words(
            'Rows are true classes with their number of images, columns are answers, in percent '
            'of the row.'),
            parts.beside(parts.confusion_table(kind, item)
                         for kind, item in report.confusions.items()))
        if report.confusions else '',
        _cases(report), _prototypes(report), _next(report)]
    # No script, no address: also a name that escaped its escaping could do nothing.
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f'<title>{escape(report.title)}: report</title>'
            f'<style>{STYLE.read_text(encoding="utf-8")}</style></head>'
            f'<body><main>{"".join(body)}</main></body></html>\n')


def _words(text: str) -> str:
    return f'<p>{escape(text)}</p>'


def _header(report: Report) -> str:
    facts = ''.join(f'<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>'
                    for name, value in report.facts)
    notes = ''.join(f'<p class="note">{escape(note)}</p>' for note in report.notes)
    return (f'<header><h1>{escape(report.title)}</h1><dl>{facts}</dl>'
            f'{parts.cards(report.run.metrics)}{notes}</header>')


def _cases(report: Report) -> str:
    if not report.cases:
        return ''
    cells = []
    for case in report.cases:
        said = ' '.join(f'<span class="{"yes" if a == b else "no"}">{escape(a)}</span>'
                        for a, b in zip(case.answer, case.truth))
        cells.append(
            f'<li><img src="{data_address(case.picture)}" alt="">'
            f'<p>{escape(" ".join(case.truth))}{"" if case.seen else " <small>unseen</small>"}</p>'
            f'<p>{said} ✗ <small>{case.probability:.0%}</small></p></li>')
    words = (f'The {len(report.cases)} most confident of the wrong answers: the truth, below it '
             'the answer and its probability. Green words are right.')
    return parts.section('Mistakes', _words(words), f'<ol class="cases">{"".join(cells)}</ol>')


def _prototypes(report: Report) -> str:
    if not report.prototypes.prototypes or report.space is None:
        return ''
    return parts.section('Prototypes', _words(
        'Each row is a prototype: the share of the training images of its attribute or object '
        'that are nearest to it, and the nearest ones. Training hardly used a dead prototype.'),
        parts.prototypes(report.prototypes, report.space, report.offsets))


def _next(report: Report) -> str:
    made = _words(f'Made by mmcluspro {__version__}.')
    if not report.commands:
        return made
    return parts.section('Next', f'<pre>{escape(chr(10).join(report.commands))}</pre>', made)
