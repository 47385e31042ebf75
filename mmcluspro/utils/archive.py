"""Verifies checksums of zip archives (``torch.save``, ``.npz``), which torch itself does not."""
from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

from mmcluspro.errors import FileError, reason_of

from .digest import file_digest

COPY_AGAIN = 'Copy or download it again, or take another one.'
BLOCK = 1 << 20
MOST_SQUEEZED = 100  # times that the content may be larger than the file, beyond the first 64 MB


def check_archive(file: Any, name: str) -> None:
    """Compares every record of a zip archive with its CRC-32. Other files pass.

    Args:
        file (str | Path | BinaryIO): The file; an open one is rewound.
        name (str): Name of the file for messages.

    Raises:
        FileError: Names the record.
    """
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                _check_records(archive, name)
    except FileError:
        raise
    except FileNotFoundError:
        raise
    except Exception as error:  # headers that are damaged raise almost anything
        raise FileError(name, f'the archive is damaged ({reason_of(error)})',
                        COPY_AGAIN) from error
    finally:
        if hasattr(file, 'seek'):
            file.seek(0)


def _check_records(archive: zipfile.ZipFile, name: str) -> None:
    seen = set()
    records = archive.infolist()
    packed, full = (sum(getattr(info, size) for info in records)
                    for size in ('compress_size', 'file_size'))
    if full > MOST_SQUEEZED * packed + (1 << 26):
        raise FileError(name, f'its {packed:,} bytes unpack to {full:,}', COPY_AGAIN)
    torch_file = any(info.filename.endswith('/data.pkl') for info in records)
    for info in records:
        try:
            if info.filename in seen:
                raise ValueError('it is there twice')
            seen.add(info.filename)
            if torch_file and info.compress_type and '/code/' not in info.filename:
                raise ValueError('it is compressed, which torch.save never does')
            with archive.open(info) as record:
                while record.read(BLOCK):
                    pass
        except Exception as error:
            raise FileError(name, f'the file is damaged ({reason_of(error)})', COPY_AGAIN,
                            f'record {info.filename[:100]!r}') from error


def check_named_digest(path: Path) -> None:
    """Compares a file with the eight hex digits of its SHA-256 that its name ends with.

    ``mmcluspro publish``, OpenMMLab and torchvision name files in this way. Other names pass.
    """
    found = re.search(r'-([0-9a-f]{8})\.(?:pth|safetensors)$', path.name)
    if not found or not re.search('[0-9]', found[1]):  # a word such as "-deadbeef" is not a digest
        return
    digest = file_digest(path, 'sha256')[:8]
    if digest != found[1]:
        raise FileError(path, f'its SHA-256 begins with {digest}, its name says '
                        f'{found[1]}: it is damaged, or was changed',
                        f'{COPY_AGAIN} If you changed it yourself, rename it.')
