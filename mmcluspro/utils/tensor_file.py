"""Published models: a safetensors file with everything but the tensors as JSON in its header."""
from __future__ import annotations

import json
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mmcluspro.errors import FileError, reason_of

from .archive import COPY_AGAIN
from .digest import sha256

SUFFIX = '.safetensors'
KEY = 'mmcluspro'  # of the header's metadata
HELD = 'tensor'  # {'tensor': name} in the JSON stands for a tensor of the file


def tensor_bytes(meta: dict[str, Any], state: dict[str, Tensor]) -> bytes:
    """The bytes of a file; the same model gives the same bytes.

    Args:
        meta (dict): Plain data, which may hold tensors.
        state (dict[str, Tensor]): Weights by key.
    """
    # A view would be refused: it shares its memory with the tensor it is a view of.
    tensors = {key: value.detach().clone().contiguous() for key, value in state.items()}

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, Tensor):
            raise TypeError(f'a {type(value).__name__} is no plain data')
        name = f'{KEY}.{len(tensors)}'
        tensors[name] = value.contiguous()
        return {HELD: name}

    meta = json.loads(json.dumps(meta, default=plain))
    header, body = _parts(save(tensors))
    return save(tensors, {KEY: json.dumps(
        dict(meta=meta, sha256=_digest(meta, header, body)))})


def read_tensor_bytes(data: bytes, name: str) -> dict[str, Any]:
    """``meta`` and ``state_dict`` of a file, whose checksum is compared.

    Args:
        data (bytes): The file.
        name (str): Of the file, for messages.
    """
    try:
        header, body = _parts(data)
        told = json.loads(header.pop('__metadata__', {}).get(KEY, 'null'))
        state = load(data)
    except (ValueError, RecursionError, AttributeError, TypeError, SafetensorError) as error:
        raise FileError(name, f'it is not a safetensors file, or damaged ({reason_of(error)})',
                        COPY_AGAIN) from error
    if not isinstance(told, dict) or not isinstance(told.get('meta'), dict):
        raise FileError(name, f'its header has no {KEY!r}: it is not an mmcluspro model',
                        'Give a file that training or mmcluspro publish wrote.')
    if told.get('sha256') != _digest(told['meta'], header, body):
        raise FileError(name, 'its content does not fit its checksum: it is damaged, or was '
                        'changed', COPY_AGAIN)
    return dict(meta=_filled(told['meta'], state), state_dict=state)


def _parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + int.from_bytes(data[:8], 'little')
    return json.loads(data[8:end]), data[end:]


def _digest(meta: dict[str, Any], header: dict[str, Any], body: bytes) -> str:
    return sha256(json.dumps([meta, header], sort_keys=True).encode(), body)


def _filled(meta: Any, state: dict[str, Tensor]) -> Any:
    """The same data with its tensors, which are taken out of ``state``."""
    if isinstance(meta, list):
        return [_filled(value, state) for value in meta]
    if not isinstance(meta, dict):
        return meta
    if list(meta) == [HELD] and str(meta[HELD]).startswith(f'{KEY}.'):
        return state.pop(meta[HELD], None)
    return {key: _filled(value, state) for key, value in meta.items()}
