"""Digests of files, arrays and weights, to identify their contents."""
import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Key of the buffer that keeps the fingerprint of a frozen tower in a checkpoint.
FINGERPRINT = 'restorable_fingerprint'


def sha256(*parts: bytes, digits: int = 64) -> str:
    """SHA-256 of bytes in sequence, the first ``digits`` hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:digits]


def file_digest(path: str | Path, algorithm: str = 'blake2b') -> str:
    """Digest of a file's content in hexadecimal digits; the file is read in blocks.

    Args:
        path (str | Path): The file.
        algorithm (str): 'blake2b' (32 digits), or 'sha256' (64 digits), by which published files
            are named. Defaults to 'blake2b', which is faster.
    """
    digest = hashlib.sha256() if algorithm == 'sha256' else hashlib.blake2b(digest_size=16)
    with Path(path).open('rb') as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def checksum(array: np.ndarray) -> str:
    """CRC-32 of an array's bytes, 8 hexadecimal digits."""
    return f'{zlib.crc32(np.ascontiguousarray(array).data):08x}'


def content_digest(content: Any) -> str:
    """SHA-256 of plain data, 16 hexadecimal digits, the same for every order of the keys."""
    return sha256(json.dumps(content, sort_keys=True).encode(), digits=16)


def arrays_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of named arrays with their shapes and types, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f'{name} {array.dtype.str} {array.shape};'.encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def fingerprint(tensors: Mapping[str, Tensor]) -> Tensor:
    """A number that changes with any bit of any tensor and is the same on every device.

    Args:
        tensors (Mapping[str, Tensor]): Named floating-point tensors.

    Returns:
        Tensor: int64, shape (); without a value on the meta device.
    """
    if any(tensor.is_meta for tensor in tensors.values()):
        return torch.empty((), dtype=torch.int64, device='meta')
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(tensors.items()):
        # Integer sums do not depend on the order of summation, unlike those of floats.
        bits = tensor.detach().float().contiguous().view(torch.int32)
        digest.update(f'{name} {tuple(tensor.shape)} {int(bits.sum(dtype=torch.int64))};'.encode())
    return torch.tensor(int.from_bytes(digest.digest(), 'little', signed=True))
