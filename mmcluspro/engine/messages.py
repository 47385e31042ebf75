"""Runs a command-line tool and turns errors that a user can fix into a message."""
import dis
import os
import re
import sys
from collections.abc import Callable
from types import TracebackType

import torch

from mmcluspro.errors import FileError, printable
from mmcluspro.registry import explain

from .resuming import safe_loading
from .signals import leave_code

OURS = ('mmcluspro', 'experiments', '__main__')


NO_ROOM = ('Dataloader workers need shared memory (/dev/shm), which has no room. Make it larger '
           '(docker run --shm-size=1g), or load without workers: --cfg-options '
           'train_dataloader.num_workers=0 val_dataloader.num_workers=0 '
           'test_dataloader.num_workers=0')


class ConfigError(ValueError):
    """A config, or an option that changes it, is wrong."""


def run_command(main: Callable[[], None]) -> None:
    """Runs a tool. Errors that a user can fix become one message, all others keep their traceback.

    Checkpoints are read without running code (:func:`safe_loading`) while the tool runs. The text
    of a ``KeyboardInterrupt`` says how to continue after Ctrl-C. ``MMCLUSPRO_TRACEBACK=1`` shows
    every traceback.

    Args:
        main (Callable): The tool.
    """
    try:
        with safe_loading():
            main()
    except KeyboardInterrupt as interrupt:
        print(f'\nInterrupted. {interrupt}'.rstrip(), file=sys.stderr)
        raise SystemExit(130) from None
    except Exception as error:
        text = message(error)
        if text is None or os.environ.get('MMCLUSPRO_TRACEBACK') == '1':
            raise
        text = printable(text, keep='\n\t')  # it may quote names of files, and words in them
        print(f'\nerror: {text}\n(MMCLUSPRO_TRACEBACK=1 shows where it was raised.)',
              file=sys.stderr)
        leave_code(2)
        raise SystemExit(2) from None
    finally:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def message(error: BaseException) -> str | None:
    """What to tell the user about an error.

    Args:
        error (BaseException): What a tool raised.

    Returns:
        str | None: A message without traceback for wrong types and fields of a config, for errors
        that this package raises on purpose, for files that cannot be opened, and for assertions
        of a class that a config builds. None for all others: they need their traceback.
    """
    text = explain(error) or _lost_worker(error) or _from_worker(error)
    if text is not None:
        return text
    if raised_here(error) or isinstance(error, (FileError, OSError)) or _asserts_a_config(error):
        return reason(error)
    # Some versions of mmengine wrap what a constructor raises in an error of the same type.
    cause = error.__cause__ or error.__context__
    if str(error).startswith('class `') and type(cause) is type(error):
        return message(cause)
    return None


def reason(error: BaseException) -> str:
    """The text of an error, with the file or the type where the text alone says little."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f': {error.filename}' if error.filename else '')
    text = str(error.args[0]) if error.args else ''
    plain = isinstance(error, (ValueError, OSError, RuntimeError)) and ' ' in text
    if plain or raised_here(error):
        return text or repr(error)
    return f'{type(error).__name__}: {text}' if text else type(error).__name__


def raised_here(error: BaseException) -> bool:
    """Whether a ``raise`` statement of this package raised the error.

    A mistake in the package, such as a missing key, is not raised by such a statement.
    """
    trace = _last(error.__traceback__)
    if trace is None:
        return False
    owner = trace.tb_frame.f_globals.get('__name__', '').split('.')[0]
    operation = dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]]
    return owner in OURS and operation == 'RAISE_VARARGS'


def _asserts_a_config(error: BaseException) -> bool:
    """Whether the arguments of a class that mmengine builds from a config failed an assertion."""
    if not isinstance(error, AssertionError) or not error.args:
        return False
    last, names, trace = _last(error.__traceback__), set(), error.__traceback__
    while trace is not None:
        names.add(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return (last is not None and last.tb_frame.f_code.co_name == '__init__'
            and 'build_from_cfg' in names)


def _from_worker(error: BaseException) -> str | None:
    """The message of an error that travelled from a dataloader worker, without its traceback."""
    found = re.match(r'Caught \w+ in DataLoader worker process .*\n(?:[\w.]+\.)?\w+: (.*)',
                     str(error.args[0]) if error.args else '', flags=re.DOTALL)
    return found[1].strip() if found and isinstance(error, ValueError) else None


def _lost_worker(error: BaseException) -> str | None:
    """What to do where a dataloader worker died, or had no room for a batch."""
    text = str(error)
    if not isinstance(error, RuntimeError):
        return None
    if re.search(r'shared memory|</torch_\w+>|Bus error', text):
        return f'{NO_ROOM}. Training goes on with --resume.'
    died = re.search(r'DataLoader worker \(pid\S* ([\d, ]+)\)', text)
    return died and (
        f'A dataloader worker (process {died[1]}) was ended by something else, often the system '
        'when memory runs out. Use fewer workers (--cfg-options train_dataloader.num_workers=1) or '
        'smaller batches; training goes on with --resume.')


def _last(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace
