"""A short console for people; the log file keeps everything."""
from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner
from tqdm import tqdm

from mmcluspro.datasets import TableCZSL
from mmcluspro.registry import HOOKS
from mmcluspro.utils.plain_files import read_csv

from .parts import finished_epochs, unwrap

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
    # Not a folder with the current one in it: pictures of the run would be answered, too.
    folder = shlex.quote(short_path(photos)) if photos and Path(photos).is_dir() and (
        not Path.cwd().is_relative_to(Path(photos).resolve())) else 'new_photos'
    images = f' --config {shlex.quote(short_path(config))}' if config and isinstance(
        dataset, TableCZSL) else ''
    # A model that was trained on all images makes no mistakes there that say anything.
    looks = () if getattr(dataset, 'phase', 'test') == 'train' else (
        f'cases {name}{images}', f'confusion {name}{images}')
    return [f'mmcluspro {line}' for line in (
        f'predict {name} {folder} --out result.csv', *looks, f'demo {name}',
        f'export {name} --out model.onnx')]


def weight_files(model: Mapping[str, Any]) -> dict[str, str]:
    """Local files that the frozen towers of a config and its tokenizer came from, by their parts.

    Args:
        model (Mapping): Field ``model`` of a config.
    """
    backbone = model.get('backbone') or {}
    inner, text = backbone.get('backbone'), (model.get('head') or {}).get('text')
    return {part: file for part, file in (
        ('backbone', _file_of(inner or backbone)),
        ('projection', _file_of(dict(backbone, backbone=None)) if inner else None),
        ('text', _file_of(text)),
        ('tokenizer', text.get('tokenizer') if isinstance(text, Mapping) else None)) if file}


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


NOISE = ('FileClient', 'HardDiskBackend', 'is skipped since its requires_grad')


@HOOKS.register_module()
class ConsoleHook(Hook):
    """Prints what runs, one line per epoch, and at the end the results and the next commands.

    Terminals also show a bar with the loss and the time left. :func:`short_console` hides all other
    messages except warnings.
    """

    priority = 'VERY_LOW'

    def __init__(self) -> None:
        self._bar: tqdm | None = None
        self._loss = 0.0
        self._losses: list[float] = []
        self._header = False
        self._validations = 0

    def before_train(self, runner: Runner) -> None:
        """Prints the model, the data and the device."""
        if runner.rank:
            return
        model = unwrap(runner.model)
        trained = sum(part.numel() for part in model.parameters() if part.requires_grad)
        every = sum(part.numel() for part in model.parameters())
        say(f'model      {type(model.head).__name__}, {trained / 1e6:.2f} of {every / 1e6:.2f} '
            'million parameters are trained')
        for name in ('train', 'val', 'test'):
            loader = getattr(runner, f'_{name}_dataloader')
            if loader is not None and getattr(runner, f'_{name}_loop') is not None:
                loader = getattr(runner, f'{name}_dataloader')
                say(data_line(name, loader.dataset))
        say(f'device     {model.head.device}, batches of {runner.train_dataloader.batch_size}')
        say(f'log        {short_path(Path(runner.log_dir) / (runner.timestamp + ".log"))}')
        if runner.iter:
            say(f'resumed    after iteration {runner.iter} of {runner.max_iters}')

    def before_train_epoch(self, runner: Runner) -> None:
        """Opens the bar."""
        self._losses = []
        if runner.rank == 0:
            self._bar = tqdm(total=runner.max_iters, initial=runner.iter, leave=False, unit='step',
                             file=sys.stderr, disable=not sys.stderr.isatty(),
                             desc=f'epoch {runner.epoch + 1}/{runner.max_epochs}')

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        """Moves the bar."""
        if self._bar is not None:
            if not self._bar.disable:
                self._bar.set_postfix(loss=f'{float((outputs or {}).get("loss", 0)):.3f}')
            self._bar.update()

    def after_train_epoch(self, runner: Runner) -> None:
        """Closes the bar; without a validation in this epoch, prints its line."""
        if self._bar is None:
            return
        self._bar.close()
        if 'fit' in runner.message_hub.runtime_info:
            say(f'fit        {runner.message_hub.get_info("fit")}')
        history = runner.message_hub.log_scalars.get('train/loss')
        self._loss = float(history.mean(len(runner.train_dataloader))) if history else 0.0
        loop: Any = runner.train_loop
        validated = runner.val_loop is not None and runner.epoch + 1 >= loop.val_begin and (
            (runner.epoch + 1) % loop.val_interval == 0 or runner.epoch + 1 == runner.max_epochs)
        if not validated:
            self._line(runner, {}, runner.epoch + 1)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Prints the line of a validation."""
        self._validations += 1
        if runner.rank == 0:
            self._line(runner, metrics or {}, finished_epochs(runner))

    def after_train(self, runner: Runner) -> None:
        """Says that the model was still getting better."""
        best = str(runner.message_hub.runtime_info.get('best_ckpt') or '')
        epochs = runner.max_epochs
        if runner.rank == 0 and self._validations > 1 and best.endswith(f'_epoch_{epochs}.pth'):
            say(f'\nThe best epoch was the last: train longer, with --cfg-options '
                f'train_cfg.max_epochs={2 * epochs}')

    def _line(self, runner: Runner, metrics: dict[str, float], epoch: int) -> None:
        if not self._header:
            say(epoch_header())
            self._header = True
        say(epoch_row(epoch, self._loss, metrics))

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Prints the results of the test, the files, and the commands to run next."""
        if runner.rank:
            return
        folder = Path(runner.work_dir)
        dataset = runner.test_dataloader.dataset
        unseen = not bool(dataset.space.seen.all())
        say(test_table(metrics or {}, len(dataset), folder, unseen))
        checkpoint = runner.message_hub.runtime_info.get('best_ckpt') or runner._load_from
        if checkpoint:
            lines = next_commands(str(checkpoint), dataset, runner.cfg.filename)
            say('\n  '.join([f'checkpoint {short_path(checkpoint)}\n\nnext:', *lines]))


def say(text: str) -> None:
    """Prints a line above the bar."""
    tqdm.write(text, file=sys.stdout)
    sys.stdout.flush()


def short_console(logger: logging.Logger) -> None:
    """Limits a logger's console output to warnings; its files do not change."""
    for handler in logger.handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(
                handler, logging.FileHandler):
            handler.addFilter(_worth_showing)


def _worth_showing(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING and not any(
        words in record.getMessage() for words in NOISE)
