"""Downloads, and what is kept on this machine by its content, for all runs of its user.

One process per machine fetches a file, the others wait for it. What is kept lies beside the
downloads of torch: ``TORCH_HOME`` moves both.
"""
from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from unittest import mock
from urllib.parse import unquote, urlparse
from urllib.request import Request, getproxies, urlopen

import torch
from tqdm import tqdm

from mmcluspro.errors import FileError, reason_of

from .digest import file_digest, sha256
from .files import atomic_path
from .locks import held

SILENT = 60  # seconds without a byte after which a server is given up, and the lock with it
GLOVE = 'https://nlp.stanford.edu/data/glove.6B.zip'
DINO = 'https://dl.fbaipublicfiles.com/dino'
# SHA-256 of published files by address. Their authors publish none: each of these is quoted
# alike by at least three independent projects. Files that are not listed are taken as they arrive.
PUBLISHED = {
    f'{DINO}/dino_vitbase16_pretrain/dino_vitbase16_pretrain.pth':
    'bf34ad0f424b9029b593e8dc3ed553bf26e88bcba0d32bf3e62a6209cb64c85e',
    f'{DINO}v2/dinov2_vits14/dinov2_vits14_pretrain.pth':
    'b938bf1bc15cd2ec0feacfe3a1bb553fe8ea9ca46a7e1d8d00217f29aef60cd9',
    f'{DINO}v2/dinov2_vits14/dinov2_vits14_reg4_pretrain.pth':
    'f433177089a681826f849f194ece3bb48f4d63fb38d32fc837e3dc7a4e5641fb',
    f'{DINO}v2/dinov2_vitb14/dinov2_vitb14_pretrain.pth':
    '0b8b82f85de91b424aded121c7e1dcc2b7bc6d0adeea651bf73a13307fad8c73',
    f'{DINO}v2/dinov2_vitb14/dinov2_vitb14_reg4_pretrain.pth':
    '73182a088cf94833c94b1666d1c99e02fe87e2007bff57b564fb6206e25dba71',
    f'{DINO}v2/dinov2_vitl14/dinov2_vitl14_pretrain.pth':
    'd5383ea8f4877b2472eb973e0fd72d557c7da5d3611bd527ceeb1d7162cbf428',
    f'{DINO}v2/dinov2_vitl14/dinov2_vitl14_reg4_pretrain.pth':
    '36e4deffbaef061a2576705b0c36f93621e2ae20bf6274694821b0b492551b51',
    GLOVE: '617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb',
}


@contextmanager
def one_process(name: str) -> Iterator[None]:
    """Admits one process at a time to the block, among all that use the same cache folder.

    If no lock can be created (a read-only cache), the block runs without one, because nothing can
    be written there.

    Args:
        name (str): Name of the task, for example a file name.
    """
    with ExitStack() as stack:
        with suppress(ValueError):
            stack.enter_context(held(Path(torch.hub.get_dir()) / 'locks' / f'{_plain(name)}.lock',
                                     f'The download of {name}', 'wait', wait=True))
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

    Its name begins with a digest of the address: two servers call different files alike. It gets
    this name when it is whole and, if the address is one of :data:`PUBLISHED`, the published file.

    Args:
        url (str): Its http(s) address.
        folder (str | Path | None): Where to keep it. Defaults to None, torch's folder for
            checkpoints.

    Returns:
        Path: The file.

    Raises:
        OSError: The server does not answer, falls silent for :data:`SILENT` seconds or ends early.
        FileError: What arrived is not the published file.
    """
    folder = Path(folder or Path(torch.hub.get_dir()) / 'checkpoints')
    name = _plain(unquote(urlparse(url).path).rsplit('/', 1)[-1])
    target = folder / f'{sha256(url.encode(), digits=12)}-{name}'
    if not target.exists():
        with one_process(target.name):
            if not target.exists():
                folder.mkdir(parents=True, exist_ok=True)
                with atomic_path(target) as part:
                    _fetch(url, part, name)
                    _check_published(url, part)
    return target


def _fetch(url: str, part: Path, name: str) -> None:
    request = Request(url, headers={'User-Agent': 'mmcluspro'})
    with urlopen(request, timeout=SILENT) as answer, part.open('wb') as file:
        size = answer.length  # None where the server does not tell it
        with tqdm.wrapattr(answer, 'read', size, desc=name, unit='B', unit_scale=True) as source:
            try:
                shutil.copyfileobj(source, file, 1 << 20)
            except HTTPException as error:  # chunks that end early
                raise OSError(f'{url}: {reason_of(error)}') from error
        if size not in (None, file.tell()):
            raise OSError(f'{url}: {file.tell():,} of {size:,} bytes arrived')


def _check_published(url: str, part: Path) -> None:
    if url in PUBLISHED and (digest := file_digest(part, 'sha256')) != PUBLISHED[url]:
        raise FileError(url, f'SHA-256 {digest} is not that of the published file, '
                        f'{PUBLISHED[url]}', 'Ask who runs this network or proxy, or fetch the '
                        'file elsewhere and give its path.')


def _plain(name: str) -> str:
    """A file name of letters and digits, its end where it is long."""
    return ''.join(letter if letter.isalnum() or letter in '._-' else '_' for letter in name)[-150:]


def kept_folder(kind: str) -> Path:
    """Folder of what is kept; ``kind`` is 'weights' or 'features'."""
    return Path(torch.hub.get_dir()) / 'mmcluspro' / kind


def keep_file(path: str | Path) -> str:
    """Keeps a file of weights: a second name for it, or a copy on another disk.

    Returns:
        str: Its SHA-256, by which :func:`find_kept` finds it.
    """
    digest = file_digest(path, 'sha256')
    target = kept_folder('weights') / digest
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(Path(path).resolve(), target)
        except OSError:
            with atomic_path(target) as part:
                shutil.copyfile(path, part)
    return digest


def find_kept(digest: str) -> Path | None:
    """The file with this SHA-256: kept before, or one of the published ones, which are fetched.

    Args:
        digest (str): 64 hexadecimal digits.

    Returns:
        Path | None: None if there is none, or its content has changed.
    """
    path = kept_folder('weights') / digest
    if path.is_file():
        return path if file_digest(path, 'sha256') == digest else None
    address = next((url for url, known in PUBLISHED.items() if known == digest), None)
    return None if address is None else download(address)
