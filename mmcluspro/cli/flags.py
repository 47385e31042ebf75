"""Flags that several commands share; nothing here imports torch, so that ``--help`` is quick."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from mmcluspro.fields import PLACES

LAUNCHERS = ('none', 'pytorch', 'slurm', 'mpi')
PHASES = ('train', 'val', 'test')
COLUMNS = ('image', 'attribute', 'object', 'split')
WORLDS = ('closed', 'open')


class ConfigOptions(argparse.Action):
    """Parses ``KEY=VALUE …`` with mmengine's ``DictAction``, which is imported only when used."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace,
                 values: Any, option_string: str | None = None) -> None:
        from mmengine.config import DictAction
        for value in values:
            if '=' not in value:
                parser.error(f'{option_string} takes KEY=VALUE, got {value!r}.')
        DictAction(self.option_strings, self.dest)(parser, namespace, values, option_string)


def make_parser(command: str | None, description: str,
                epilog: str | None = None) -> argparse.ArgumentParser:
    """A parser that keeps the line breaks of its texts.

    Args:
        command (str | None): Name of the command. None: that of the running script.
        description (str): What the command does.
        epilog (str, optional): Examples. Defaults to None.
    """
    return argparse.ArgumentParser(
        prog=None if command is None else f'mmcluspro {command}', description=description,
        epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_common_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that training and testing have in common."""
    parser.add_argument('--work-dir', help='folder for logs, checkpoints and pictures '
                        '(default: work_dirs/<name of the config>)')
    parser.add_argument('--amp', action='store_true',
                        help='mixed precision: bfloat16, or float16 on GPUs that lack it')
    parser.add_argument('--log', choices=('short', 'full'), help='what the console shows; the log '
                        'file has everything (default: short for the command mmcluspro, full for '
                        'the scripts in tools/)')
    parser.add_argument('--no-pin-memory', action='store_true',
                        help='do not pin host memory in the dataloaders')
    add_config_options(parser, 'override config fields, for example train_cfg.max_epochs=3 '
                       'model.head.fusion=logits; lists as key="[a,b]", without spaces')
    add_dataset_flag(parser)
    parser.add_argument('--launcher', choices=LAUNCHERS, default='none', help='job launcher')
    # torchrun sets LOCAL_RANK; older launchers pass it as a flag.
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0,
                        help=argparse.SUPPRESS)


def add_dataset_flag(parser: argparse.ArgumentParser) -> None:
    """Adds ``--dataset``."""
    parser.add_argument('--dataset', help='for a method such as csp.py: the dataset, for example '
                        'utzappos; the same as csp_utzappos.py')


def add_config_options(parser: argparse.ArgumentParser, text: str) -> None:
    """Adds ``--cfg-options``; ``text`` is its help."""
    parser.add_argument('--cfg-options', nargs='+', action=ConfigOptions, metavar='KEY=VALUE',
                        help=text)


def add_out_flag(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds ``--out``."""
    parser.add_argument('--out', default=default, help='picture to write, as .png and as .svg '
                        f'(default: {default})')


def add_run_flags(parser: argparse.ArgumentParser, phase: str) -> None:
    """Adds the flags for running a checkpoint on the images of a phase."""
    parser.add_argument('--phase', choices=PHASES, default=phase,
                        help=f'which images to use (default: {phase})')
    parser.add_argument('--device', default='cpu', help="for example 'cuda' (default: cpu)")
    parser.add_argument('--batch-size', type=int, default=64, help='images per batch (default: 64)')
    parser.add_argument('--data-root', help='folder of the images (default: the folder in our '
                        'configs for the dataset)')
    add_model_flags(parser, 'your config file: it says where the images are, and how to build the '
                    'model if the checkpoint does not describe it; the config inside a checkpoint '
                    'is never built')
    add_config_options(parser, 'override fields of --config, for example '
                       'test_dataloader.dataset.indices=100')


class ColumnNames(argparse.Action):
    """Parses ``image=file object=item``."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace,
                 values: Any, option_string: str | None = None) -> None:
        named = dict(value.partition('=')[::2] for value in values)
        wrong = [name for name, theirs in named.items()
                 if name not in COLUMNS or not theirs.strip()]
        if wrong:
            parser.error(f'{option_string} takes {"=NAME ".join(COLUMNS)}=NAME, each or some of '
                         f'them, got {" ".join(values)!r}.')
        setattr(namespace, self.dest, named)


def add_photo_flags(parser: argparse.ArgumentParser, fix: bool = False) -> None:
    """Adds the flags that say how own images are labelled."""
    parser.add_argument('--separator', help='for your own images: what separates attribute and '
                        'object in the name of a folder (default: _ or __ or /, the first that '
                        'fits all folders)')
    parser.add_argument('--columns', nargs='+', action=ColumnNames, metavar='COLUMN=NAME',
                        default={}, help='for your own table: what its columns are called, for '
                        'example image=file attribute=state object=item')
    if fix:
        parser.add_argument('--fix-names', action='store_true', help='for your own images: merge '
                            'attributes and objects that differ in upper case, separators or a '
                            'plural only, into the name that most images have')


def parsed(parser: argparse.ArgumentParser, argv: Sequence[str] | None,
           at_least_one: Sequence[str] = ()) -> argparse.Namespace:
    """Parses, and rejects flags in ``at_least_one`` that are smaller than 1."""
    args = parser.parse_args(argv)
    for name in at_least_one:
        value = getattr(args, name)
        if value is not None and value < 1:
            parser.error(f'--{name.replace("_", "-")} must be at least 1, got {value}.')
    return args


CONFIG = ('your config file, built instead of what the checkpoint describes; the config inside a '
          'checkpoint is never built')


def add_model_flags(parser: argparse.ArgumentParser, config: str = CONFIG) -> None:
    """Adds ``--config``, ``--import`` and ``--weights``; ``config`` is the help of the first."""
    parser.add_argument('--config', help=config)
    parser.add_argument('--import', dest='imports', action='append', default=[], metavar='MODULE',
                        help='module of yours whose classes the checkpoint uses; may be repeated')
    parser.add_argument('--weights', nargs='+', metavar='[PART=]FILE', help='weights of the frozen '
                        'towers, where training took them from local files: one file for both, or '
                        'backbone=FILE, text=FILE, projection=FILE, words=FILE (word vectors)')


def add_bias_flags(parser: argparse.ArgumentParser) -> None:
    """Adds ``--prefer`` and ``--seen-bias``."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument('--prefer', choices=('seen', 'balanced', 'unseen'), default='balanced',
                        help='which pairs matter more: those of training, or new ones; each bias '
                        'was chosen on validation (default: balanced)')
    either.add_argument('--seen-bias', type=float, metavar='X',
                        help='subtract X from the log scores of seen pairs instead; 0 favours '
                        'seen pairs, larger values favour unseen ones')


def model_options(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of :func:`mmcluspro.load` from the flags."""
    return dict(config=args.config, imports=args.imports, weights=_weights(args.weights))


def _weights(words: list[str] | None) -> Any:
    if not words:
        return None
    parts = [word.partition('=') for word in words]
    named = {name: path for name, sign, path in parts if sign and name in PLACES}
    if len(named) == len(words):
        return named
    if len(words) == 1 and not named:
        return words[0]
    raise ValueError(f'--weights takes one file, or {"=FILE, ".join(PLACES[:-1])}=FILE and '
                     f'{PLACES[-1]}=FILE, each once, got {" ".join(words)}.')


def add_part_flag(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds ``--part``, which divides work among processes and machines.

    Args:
        parser (argparse.ArgumentParser): Of the command.
        what (str): What is divided, for the help.
    """
    parser.add_argument('--part', type=_part, default=(0, 1), metavar='I/N',
                        help=f'do the I-th of N parts of the {what} alone, such as 1/4 to 4/4 in '
                        'four processes or on four machines (default: all)')


def _part(text: str) -> tuple[int, int]:
    number, _, total = text.partition('/')
    if not (number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
        raise argparse.ArgumentTypeError(f'write it as I/N with 1 <= I <= N, such as 1/4; got '
                                         f'{text!r}')
    return int(number) - 1, int(total)
