"""A short console for people; the log file keeps everything."""
import logging
import sys
from pathlib import Path
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner
from tqdm import tqdm

from mmcluspro.registry import HOOKS

from .console_text import data_line, epoch_header, epoch_row, next_commands, short_path, test_table
from .parts import unwrap

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
            self._line(runner, metrics or {}, runner.epoch)

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
