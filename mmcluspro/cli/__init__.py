"""The command line: ``mmcluspro train``, ``test``, ``predict`` and the others.

The scripts in ``tools/`` call the same functions.
"""
import codecs
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from mmcluspro.requirements import check_requirements, extra_command

from .command_table import COMMANDS, GROUPS

EXAMPLES = """examples:
  mmcluspro train photos/
  mmcluspro train cluspro_shapes.py
  mmcluspro test cluspro_shapes.py work_dirs/cluspro_shapes/best_czsl_auc_epoch_16.pth
  mmcluspro predict best_czsl_auc_epoch_16.pth photos/ --out result.csv
  mmcluspro COMMAND --help"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command. Errors that a user can fix become one message.

    Args:
        argv (Sequence[str], optional): The words after ``mmcluspro``. Defaults to None: those of
            the process.

    Returns:
        int: The exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    print_anything()
    if not words or words[0] in ('-h', '--help'):
        print(usage())
        return 0 if words else 2
    if words[0] == '--version':
        from mmcluspro.version import __version__
        print(__version__)
        return 0
    if words[0] not in COMMANDS:
        near = get_close_matches(words[0], COMMANDS, 1)
        print(f'error: no command {words[0]!r}' + (f'; did you mean {near[0]}?' if near else '')
              + ' mmcluspro --help lists all commands.', file=sys.stderr)
        return 2
    find_flags(words[0])(words[1:])  # --help and wrong options end here
    if sys.stderr.isatty():
        print('loading …', file=sys.stderr, flush=True)  # importing torch takes seconds
    os.environ.setdefault('OPENCV_LOG_LEVEL', 'ERROR')  # damaged images are reported by us
    # mmcv-lite warns in every process; none of its operators is used here.
    warnings.filterwarnings('ignore', message='Fail to import ``MultiScale')
    warnings.showwarning = say_warning
    try:
        check_requirements()
    except ImportError as error:
        print(f'error: {error}', file=sys.stderr)
        return 2
    from mmcluspro.engine.messages import run_command
    from mmcluspro.engine.signals import STOP
    STOP.ends_process = argv is None
    codes: list[Any] = []
    run_command(lambda: codes.append(find_main(words[0])(words[1:])))
    return codes[0] or 0


def print_anything() -> None:
    """Lets all text be printed: bytes of file names as they are, letters of others as ``\\xe9``."""
    def replaced(error: UnicodeError) -> tuple[str | bytes, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        letters = error.object[error.start:error.end]
        return b''.join(
            bytes([ord(letter) - 0xdc00]) if '\udc80' <= letter <= '\udcff'  # of a file name
            else letter.encode('ascii', 'backslashreplace') for letter in letters), error.end

    codecs.register_error('mmcluspro.printed', replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors='mmcluspro.printed')


def say_warning(message: Any, category: type, *place: Any, **options: Any) -> None:
    """Prints warnings for users without the line of code, and skips those for developers."""
    if issubclass(category, UserWarning) and 'mmcv' not in str(message):
        from mmcluspro.errors import printable
        print('warning: ' + printable(message, keep='\n'), file=sys.stderr)


def usage() -> str:
    """What ``mmcluspro --help`` prints."""
    lines = []
    for title, group in GROUPS.items():
        lines += ['', f'{title}:', *(f'  {name:<18}{command.text}'
                                     for name, command in group.items())]
    return '\n'.join(['usage: mmcluspro COMMAND …', *lines, '', EXAMPLES])


def find_flags(command: str) -> Callable[[Sequence[str]], Any]:
    """The function that parses the words of a command."""
    module, name = COMMANDS[command].flags.split(':')
    return getattr(import_module(module), name)


def find_main(command: str) -> Callable[[Sequence[str]], int | None]:
    """The function of a command.

    Raises:
        ImportError: Names the extra that the command needs.
    """
    module, extra = COMMANDS[command].module, COMMANDS[command].extra
    try:
        return import_module(module).main
    except ModuleNotFoundError as error:
        if extra is None:
            raise
        raise ImportError(
            f'mmcluspro {command} needs {error.name!r}, which is not installed: '
            f'{extra_command(extra)}') from None
