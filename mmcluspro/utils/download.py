"""Downloads: one process per machine fetches a file, the others wait for it."""
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlparse

import torch
from filelock import FileLock

from .atomic import atomic_path


@contextmanager
def one_process(name: str) -> Iterator[None]:
    """Lets one process at a time into the block, among all that use the same cache folder.

    Where no lock can be made (a read-only cache), the block runs without one: nothing can be
    written there either.

    Args:
        name (str): What the processes would do twice, for example the name of a file.
    """
    safe = ''.join(letter if letter.isalnum() or letter in '._-' else '_' for letter in name)
    with ExitStack() as stack:
        with suppress(OSError):
            folder = Path(torch.hub.get_dir()) / 'locks'
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(str(folder / f'{safe[-150:]}.lock')))
        yield


def download(url: str, folder: str | Path | None = None) -> Path:
    """Fetches a file unless it is there.

    Args:
        url (str): Its http(s) address.
        folder (str | Path | None): Where to keep it. Defaults to None, torch's folder for
            checkpoints.

    Returns:
        Path: The file.
    """
    folder = Path(folder or Path(torch.hub.get_dir()) / 'checkpoints')
    target = folder / unquote(urlparse(url).path).rsplit('/', 1)[-1]
    if not target.exists():
        with one_process(target.name):
            if not target.exists():
                folder.mkdir(parents=True, exist_ok=True)
                with atomic_path(target) as part:
                    torch.hub.download_url_to_file(url, str(part))
    return target
