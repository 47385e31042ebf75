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
from typing import Any, NamedTuple

from mmcluspro.requirements import check_requirements, extra_command

EXAMPLES = """examples:
  mmcluspro train photos/
  mmcluspro train cluspro_shapes.py
  mmcluspro test cluspro_shapes.py work_dirs/cluspro_shapes/best_czsl_auc_epoch_16.pth
  mmcluspro predict best_czsl_auc_epoch_16.pth photos/ --out result.csv
  mmcluspro COMMAND --help"""


class Command(NamedTuple):
    """One subcommand; a new one is an entry in :data:`GROUPS` and a module.

    Attributes:
        module (str): Its ``main(argv)`` runs it and returns an exit code or None.
        text (str): What it does, for ``mmcluspro --help``.
        flags (str): Module and function that parse its words without importing torch. Defaults to
            '': ``parse_args`` of ``module``.
        extra (str | None): Extra of the package that the module cannot be imported without.
    """
    module: str
    text: str
    flags: str = ''
    extra: str | None = None


GROUPS: dict[str, dict[str, Command]] = {
    'train and predict': {
        'train': Command('mmcluspro.cli.train', 'train on your own images, or by a config'),
        'test': Command('mmcluspro.cli.test',
                        'test a checkpoint: seen, unseen, harmonic mean, AUC'),
        'predict': Command('mmcluspro.cli.predict', 'predict attribute and object of images'),
        'search': Command('mmcluspro.cli.search', 'find the photographs that show a pair'),
        'demo': Command('mmcluspro.demo.demo_command', 'try a model in the browser',
                        'mmcluspro.cli.apps:parse_demo', 'demo'),
        'export': Command('mmcluspro.export.export_command', 'write ONNX files',
                          'mmcluspro.cli.apps:parse_export', 'export'),
        'publish': Command('mmcluspro.cli.publish', 'write a small checkpoint to share'),
    },
    'data': {
        'check-data': Command('mmcluspro.cli.check_data',
                              'count a dataset and list what is wrong with it'),
        'make-split': Command('mmcluspro.cli.make_split',
                              'split your own images into seen and unseen pairs'),
        'review': Command('mmcluspro.cli.review',
                          'correct predictions by hand, and train with the corrections'),
        'extract-features': Command('mmcluspro.cli.extract_features',
                                    'store the features of a frozen backbone'),
    },
    'pictures': {
        name: Command(f'mmcluspro.visualization.{module}', text,
                      f'mmcluspro.cli.pictures:parse_{name}')
        for name, module, text in (
            ('report', 'make_report', 'one HTML file: numbers, curves, mistakes, prototypes'),
            ('curves', 'curve_plot', 'seen-unseen curves of several runs'),
            ('cases', 'cases', "one model's mistakes, or one model against another"),
            ('confusion', 'confusion',
             'which attributes, objects and pairs are confused with which'),
            ('accuracy', 'accuracy', 'accuracy of each attribute and object'),
            ('prototypes', 'prototypes', 'the images nearest to each prototype'),
            ('tsne', 'tsne', 't-SNE of attribute and object features'),
        )
    },
}
COMMANDS: dict[str, Command] = {
    name: command for group in GROUPS.values() for name, command in group.items()}


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
    module, _, name = COMMANDS[command].flags.partition(':')
    return getattr(import_module(module or COMMANDS[command].module), name or 'parse_args')


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
