"""``mmcluspro publish``: a checkpoint to hand out."""
import argparse
from collections.abc import Sequence
from pathlib import Path

from .publish import publish


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and runs it."""
    parser = argparse.ArgumentParser(
        prog='mmcluspro publish',
        description='Writes the weights that predict, without optimizer, schedule, history and '
        'prototypes; the first eight hex digits of the SHA-256 go into the name.',
        epilog='example: mmcluspro publish work_dirs/cluspro_shapes/best_czsl_auc_epoch_20.pth '
        'cluspro_shapes.pth')
    parser.add_argument('source', metavar='IN', help='checkpoint of tools/train.py')
    parser.add_argument('target', metavar='OUT', help='new file, or a folder')
    args = parser.parse_args(argv)
    path = publish(args.source, args.target)
    before, after = (Path(file).stat().st_size / 1e6 for file in (args.source, path))
    print(f'{path} ({after:.1f} MB, from {before:.1f} MB)')
