"""Downloads: one process per machine fetches a file, the others wait for it."""
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest import mock
from urllib.parse import unquote, urlparse
from urllib.request import getproxies

import torch
from filelock import FileLock

from .atomic import atomic_path


@contextmanager
def one_process(name: str) -> Iterator[None]:
    """Admits one process at a time to the block, among all that use the same cache folder.

    If no lock can be created (a read-only cache), the block runs without one, because nothing can
    be written there.

    Args:
        name (str): Name of the task, for example a file name.
    """
    safe = ''.join(letter if letter.isalnum() or letter in '._-' else '_' for letter in name)
    with ExitStack() as stack:
        with suppress(OSError):
            folder = Path(torch.hub.get_dir()) / 'locks'
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(str(folder / f'{safe[-150:]}.lock')))
        yield


def reachable(addresses: Iterable[str], seconds: float = 3) -> bool:
    """Whether one of the servers answers; not checked behind a proxy.

    Args:
        addresses (Iterable[str]): https addresses.
        seconds (float): How long to wait for each. Defaults to 3.
    """
    if getproxies():
        return True
    for address in addresses:
        with suppress(OSError), socket.create_connection(
                (urlparse(address).hostname or '', 443), timeout=seconds):
            return True
    return False


@contextmanager
def hub_offline() -> Iterator[None]:
    """Restricts the Hugging Face hub to its cache: no retries without a network."""
    with mock.patch('huggingface_hub.constants.HF_HUB_OFFLINE', True):
        yield


def hub_address() -> str:
    """Address of the Hugging Face hub."""
    return os.environ.get('HF_ENDPOINT') or 'https://huggingface.co'


def download(url: str, folder: str | Path | None = None) -> Path:
    """Downloads a file unless it exists.

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
