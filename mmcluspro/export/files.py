"""Writes exported files, with a clear message if that is not possible."""
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmcluspro.utils.files import atomic_path


@contextmanager
def writable(path: str | Path) -> Iterator[Path]:
    """A temporary file that replaces ``path`` when the block ends without an error.

    Args:
        path (str | Path): The file to write; its folder is created.

    Yields:
        Path: The file to write to, with the same suffix.

    Raises:
        ValueError: The file cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path, keep_suffix=True) as part:
            yield part
    except OSError as error:
        raise ValueError(
            f'{path} cannot be written ({error.strerror or error}). Choose another place.'
        ) from None
