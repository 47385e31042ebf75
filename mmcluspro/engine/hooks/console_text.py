"""Texts of the short console."""
from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmcluspro.datasets import TableCZSL
from mmcluspro.utils.plain_files import read_csv

COLUMNS = (('seen', 'czsl/seen'), ('unseen', 'czsl/unseen'), ('hm', 'czsl/hm'),
           ('auc', 'czsl/auc'), ('open hm', 'czsl_open/hm'), ('open auc', 'czsl_open/auc'))
ROWS = (('as predict will answer', 'predict', ''),
        ('  with --prefer seen', 'predict', '_prefer_seen'),
        ('  with --prefer unseen', 'predict', '_prefer_unseen'))
OTHER_ROWS = (('two logistic regressions', 'regressions', ''), )
PAPER_ROWS = (('as papers report it', 'czsl', ''), ('  in the open world', 'czsl_open', ''))

TEST_AGAIN = 'mmcluspro test writes it again.'


def data_line(phase: str, dataset: Any) -> str:
    """How much data a phase has."""
    space = dataset.space
    seen = int(space.seen.sum())
    return (f'{phase:<11}{len(dataset)} images, {seen} seen and {len(space) - seen} unseen pairs '
            f'of {len(space.attributes)} attributes and {len(space.objects)} objects')


def epoch_header() -> str:
    """Names of the columns of :func:`epoch_row`; validation, in percent."""
    return '\n' + f'{"epoch":>5}{"loss":>9}' + ''.join(f'{name:>10}' for name, _ in COLUMNS)


def epoch_row(epoch: int, loss: float, metrics: Mapping[str, float]) -> str:
    """One line per epoch, with the numbers of its validation."""
    cells = [f'{metrics[key]:>10.1f}' if key in metrics else ' ' * 10 for _, key in COLUMNS]
    return f'{epoch:>5}{loss:>9.3f}{"".join(cells)}'.rstrip()


def test_table(metrics: Mapping[str, float], images: int, folder: Path,
               unseen: bool = True) -> str:
    """The numbers of a test, the worst pairs, and the files.

    Args:
        metrics (Mapping[str, float]): By name.
        images (int): How many were tested.
        folder (Path): With the files of the test.
        unseen (bool): Whether there are unseen pairs; a dash stands for numbers that need them.
            Defaults to True.
    """
    crossed = 'held_out/folds' in metrics
    unseen = unseen or crossed
    title = 'cross-validation with' if crossed else 'test of'
    lines = ['', f'{title} {images} images, in percent', ' ' * 26 + ''.join(
        f'{name:>8}' for name in ('seen', 'unseen', 'hm', 'auc'))]
    lines += _rows(ROWS[:1], metrics, unseen)
    if 'interval/seen_low' in metrics:
        lines.append(f'{"  95 % interval":<26}' + ''.join(
            f'{interval(metrics, name):>8}' for name in ('seen', 'unseen', 'hm', 'auc')))
    lines += _rows(ROWS[1:], metrics, unseen)
    for threshold in (0.5, 0.9):
        coverage = metrics.get(f'predict/coverage_at_{threshold}')
        accuracy = metrics.get(f'predict/accuracy_at_{threshold}')
        if coverage is not None:
            share = 'under 1' if 0 < coverage < 0.5 else f'{coverage:.0f}'
            lines.append(f'  with --threshold {threshold}    answers {share} % of the images'
                         + (f', {accuracy:.0f} % of them right' if accuracy is not None else ''))
    lines += _rows(PAPER_ROWS, metrics, unseen)
    lines += _rows(OTHER_ROWS, metrics, unseen)
    lines += measured(metrics)
    worst = _worst(folder / 'test_pairs.csv')
    if worst and 'predict/seen' in metrics:
        lines.append(f'worst pairs: {worst}')
    files = [name for name in ('report.html', 'test_metrics.json', 'test_curve.png',
                               'test_classes.png', 'test_pairs.csv') if (folder / name).exists()]
    if files:
        lines.append(f'\nnumbers, pictures and tables in {short_path(folder)}: {", ".join(files)}')
    return '\n'.join(lines)


def interval(metrics: Mapping[str, float], name: str) -> str:
    """'41–53' for 'seen', 'unseen', 'hm' or 'auc'."""
    low, high = (metrics[f'interval/{name}_{end}'] for end in ('low', 'high'))
    return f'{low:.0f}–{high:.0f}'


def measured(metrics: Mapping[str, float]) -> list[str]:
    """How a cross-validation measured, one sentence each; none for a test."""
    if 'held_out/folds' not in metrics:
        return []
    return [
        f'Measured by {metrics["held_out/folds"]:.0f} fits, each without a part of the pairs and '
        'of the images, on what it had not seen.',
        'The checkpoint is fitted to all images and pairs. With other photographs, seen and unseen '
        f'may move within {interval(metrics, "seen")} and {interval(metrics, "unseen")}.',
        f'predict chooses among the labelled pairs, about {metrics["czsl/seen"]:.0f} % right, '
        'unless you ask for others (--pairs, --world open).']


def _rows(rows: Sequence[tuple[str, str, str]], metrics: Mapping[str, float],
          unseen: bool) -> Iterator[str]:
    for title, prefix, suffix in rows:
        keys = [f'{prefix}/{name}{suffix}' for name in ('seen', 'unseen', 'hm', 'auc')]
        if keys[0] in metrics:
            cells = [f'{metrics[key]:>8.1f}' if unseen or key == keys[0] else f'{"–":>8}'
                     for key in keys if key in metrics]
            yield f'{title:<26}{"".join(cells)}'


def next_commands(checkpoint: str, dataset: Any = None,
                  config: str | None = None) -> list[str]:
    """The commands to run next, for the console and the report.

    Args:
        checkpoint (str): The best one.
        dataset (CZSLDataset, optional): The images. Defaults to None: a name stands for them.
        config (str, optional): Config of the training, for pictures of data whose folder only it
            names. Defaults to None.
    """
    name, photos = shlex.quote(short_path(checkpoint)), getattr(dataset, 'data_root', None)
    folder = shlex.quote(short_path(photos)) if photos and Path(photos).is_dir() else 'photos'
    images = f' --config {shlex.quote(short_path(config))}' if config and isinstance(
        dataset, TableCZSL) else ''
    # A model that was trained on all images makes no mistakes there that say anything.
    looks = () if getattr(dataset, 'phase', 'test') == 'train' else (
        f'cases {name}{images}', f'confusion {name}{images}')
    return [f'mmcluspro {line}' for line in (
        f'predict {name} {folder} --out result.csv', *looks, f'demo {name}',
        f'export {name} --out model.onnx')]


def weight_files(model: Mapping[str, Any]) -> dict[str, str]:
    """Local files that the frozen towers of a config came from, by their parts.

    Args:
        model (Mapping): Field ``model`` of a config.
    """
    backbone = model.get('backbone') or {}
    inner = backbone.get('backbone')
    return {part: file for part, file in (
        ('backbone', _file_of(inner or backbone)),
        ('projection', _file_of(dict(backbone, backbone=None)) if inner else None),
        ('text', _file_of((model.get('head') or {}).get('text')))) if file}


def _file_of(part: Any) -> str | None:
    """The first ``pretrained`` of a part of a config that is a file."""
    if not isinstance(part, Mapping):
        return None
    own = part.get('pretrained')
    if isinstance(own, str) and Path(own).expanduser().is_file():
        return own
    return next(filter(None, map(_file_of, part.values())), None)


def _worst(path: Path, most: int = 4) -> str:
    if not path.is_file():
        return ''
    needed = ('name', 'accuracy', 'images')
    rows = read_csv(path, needed, TEST_AGAIN).columns(needed, TEST_AGAIN)[:most]
    return ', '.join(f'{row["name"]} {float(row["accuracy"]):.0f} % of {row["images"]}'
                     for _, row in rows)


def short_path(path: str | Path) -> str:
    """Relative to the current folder where that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
