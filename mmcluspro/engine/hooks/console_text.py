"""Texts of the short console."""
from __future__ import annotations

import csv
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmcluspro.utils.spreadsheet import unguard

COLUMNS = (('seen', 'czsl/seen'), ('unseen', 'czsl/unseen'), ('hm', 'czsl/hm'),
           ('auc', 'czsl/auc'), ('open hm', 'czsl_open/hm'), ('open auc', 'czsl_open/auc'))
ROWS = (('as predict will answer', 'predict', ''),
        ('  with --prefer seen', 'predict', '_prefer_seen'),
        ('  with --prefer unseen', 'predict', '_prefer_unseen'))
PAPER_ROWS = (('as papers report it', 'czsl', ''), ('  in the open world', 'czsl_open', ''))


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
    lines = ['', f'test of {images} images, in percent', ' ' * 26 + ''.join(
        f'{name:>8}' for name in ('seen', 'unseen', 'hm', 'auc'))]
    lines += _rows(ROWS, metrics, unseen)
    for threshold in (0.5, 0.9):
        coverage = metrics.get(f'predict/coverage_at_{threshold}')
        accuracy = metrics.get(f'predict/accuracy_at_{threshold}')
        if coverage is not None:
            share = 'under 1' if 0 < coverage < 0.5 else f'{coverage:.0f}'
            lines.append(f'  with --threshold {threshold}    answers {share} % of the images'
                         + (f', {accuracy:.0f} % of them right' if accuracy is not None else ''))
    lines += _rows(PAPER_ROWS, metrics, unseen)
    worst = _worst(folder / 'test_pairs.csv')
    if worst and 'predict/seen' in metrics:
        lines.append(f'worst pairs: {worst}')
    files = [name for name in ('report.html', 'test_metrics.json', 'test_curve.png',
                               'test_classes.png', 'test_pairs.csv') if (folder / name).exists()]
    if files:
        lines.append(f'\nnumbers, pictures and tables in {short_path(folder)}: {", ".join(files)}')
    return '\n'.join(lines)


def _rows(rows: Sequence[tuple[str, str, str]], metrics: Mapping[str, float],
          unseen: bool) -> Iterator[str]:
    for title, prefix, suffix in rows:
        keys = [f'{prefix}/{name}{suffix}' for name in ('seen', 'unseen', 'hm', 'auc')]
        if keys[0] in metrics:
            cells = [f'{metrics[key]:>8.1f}' if unseen or key == keys[0] else f'{"–":>8}'
                     for key in keys if key in metrics]
            yield f'{title:<26}{"".join(cells)}'


def next_commands(checkpoint: str, model: Mapping[str, Any] | None = None,
                  photos: str | None = None, config: str | None = None) -> str:
    """The commands to run next.

    Args:
        checkpoint (str): The best one.
        model (Mapping, optional): Field ``model`` of the config, for weights in local files, which
            are not part of a checkpoint. Defaults to None.
        photos (str, optional): Folder of the images. Defaults to None: a name that stands for one.
        config (str, optional): Config of the training, for pictures of data whose folder only it
            names. Defaults to None: not needed.
    """
    name = shlex.quote(short_path(checkpoint))
    flags = _weight_flags(model or {})
    folder = shlex.quote(short_path(photos)) if photos and Path(photos).is_dir() else 'photos'
    images = f'--config {shlex.quote(short_path(config))}' if config else flags.strip()
    return '\n'.join([
        f'checkpoint {name}', '', 'next:',
        f'  mmcluspro predict {name} {folder} --out result.csv{flags}',
        f'  mmcluspro cases {name} {images}'.rstrip(),
        f'  mmcluspro demo {name}{flags}',
        f'  mmcluspro export {name} --out model.onnx{flags}'])


def _weight_flags(model: Mapping[str, Any]) -> str:
    """``--weights`` for frozen towers that came from files of the user's."""
    files = weight_files(model)
    if not files:
        return ''
    if len(files) == 2 and len(set(files.values())) == 1:
        return f' --weights {shlex.quote(short_path(files["text"]))}'
    return ' --weights ' + ' '.join(
        f'{part}={shlex.quote(short_path(file))}' for part, file in files.items())


def weight_files(model: Mapping[str, Any]) -> dict[str, str]:
    """Local files that the frozen towers of a config came from, by their parts.

    Args:
        model (Mapping): Field ``model`` of a config.
    """
    return {part: file for part, file in (
        ('backbone', _file_of(model.get('backbone'))),
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
    with path.open(newline='', encoding='utf-8') as file:
        rows = list(csv.DictReader(file))[:most]
    return ', '.join(f'{unguard(row["name"])} {float(row["accuracy"]):.0f} % of {row["images"]}'
                     for row in rows)


def short_path(path: str | Path) -> str:
    """Relative to the current folder where that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
