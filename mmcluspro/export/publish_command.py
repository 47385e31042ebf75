"""``mmcluspro publish``: a checkpoint to hand out."""
from collections.abc import Sequence
from pathlib import Path

from mmcluspro.flags.predict_flags import parse_publish

from .publish import publish


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and runs it."""
    args = parse_publish(argv)
    path = publish(args.source, args.target)
    before, after = (Path(file).stat().st_size / 1e6 for file in (args.source, path))
    print(f'{path} ({after:.1f} MB, from {before:.1f} MB)')
