"""Writing files whole or not at all."""
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def writable(path: str | Path) -> Iterator[Path]:
    """A file beside ``path`` that takes its place when the block ends without an error.

    Args:
        path (str | Path): The file to write; its folder is made.

    Yields:
        Path: The file to write to, with the same suffix.
    """
    path = Path(path)
    temporary = path.with_name(f'.{path.stem}.{os.getpid()}{path.suffix}')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()  # before the work, not after
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise ValueError(
            f'{path} cannot be written ({error.strerror or error}): give another place.') from None
    finally:
        if temporary.exists():
            temporary.unlink()
