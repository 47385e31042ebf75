"""Finds NaN and infinity in what a run saves and loads."""
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

# What holds weights; the message hub keeps numbers of the log, which may be anything.
PARTS = ('state_dict', 'ema_state_dict', 'optimizer')


def non_finite_tensors(checkpoint: Mapping[str, Any]) -> list[str]:
    """Names of the weights and optimizer states that hold NaN or infinity.

    Attention masks hold -inf by design; buffers whose name ends with ``mask`` may hold infinity.

    Args:
        checkpoint (Mapping): What ``Runner.save_checkpoint`` writes.

    Returns:
        list[str]: Such as ``state_dict.neck.weight``; empty for a good checkpoint.
    """
    found = []
    for part in PARTS:
        for name, tensor in _tensors(checkpoint.get(part), part):
            if not tensor.is_floating_point():
                continue
            bad = tensor.isnan() if name.endswith('mask') else ~tensor.isfinite()
            if bool(bad.any()):
                found.append(name)
    return found


def _tensors(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f'{name}.{key}')
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _tensors(item, f'{name}.{place}')
