"""Flags by which a user vouches for what a checkpoint may not name itself."""
from __future__ import annotations

import argparse
from typing import Any

PLACES = ('backbone', 'text', 'projection', 'words')


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
    raise ValueError('--weights takes one file, or backbone=FILE, text=FILE, projection=FILE and '
                     f'words=FILE, each once, got {" ".join(words)}.')
