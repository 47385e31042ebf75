"""Writes a small checkpoint to share: ``mmcluspro publish``."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from .flags import make_parser

PUBLISH_EXAMPLE = """example:
  mmcluspro publish work_dirs/cluspro_shapes/best_czsl_auc_epoch_16.pth cluspro_shapes"""


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro publish``."""
    parser = make_parser(
        'publish', 'Write a small checkpoint that predicts the same. Optimizer, schedule, history '
        'and whatever\nelse only training needs are left out. The name of the new file contains '
        'the first eight hex\ndigits of its SHA-256.', PUBLISH_EXAMPLE)
    parser.add_argument('source', metavar='IN', help='checkpoint that training wrote')
    parser.add_argument('target', metavar='OUT', help='new file, or a folder')
    parser.add_argument('--standalone', action='store_true', help='put the frozen towers into the '
                        'file, in half precision, so that other machines need nothing else')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and runs it."""
    from mmcluspro.artefact.save import publish
    args = parse_args(argv)
    path = publish(args.source, args.target, args.standalone)
    before, after = (Path(file).stat().st_size / 1e6 for file in (args.source, path))
    print(f'{path} ({after:.1f} MB, from {before:.1f} MB)')
