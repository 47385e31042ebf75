"""Memory that a description may ask for: what its file holds, and the published towers it names.

Each field of the schema has bounds, but their product does not: 64 layers of width 8192 pass, and
would take 200 GB. Every parameter of a prediction model comes from the file or from a tower that
is named, so that the sum of both bounds the model.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from torch import Tensor
from torch.nn.modules import module as nn_module

from mmcluspro.errors import FileError
from mmcluspro.fields import fields_of
from mmcluspro.models.sources import DEFAULT, FILE, TINY, ClipSource, clip_numbers

from .parts import class_of

SPARE = 20_000_000  # numbers: the shipped tower, tables made of it
LARGEST_DINO = 1_200_000_000
LARGEST_UNKNOWN = 1_000_000_000  # of a tower whose file is not there: the message about it is next


def allowed_numbers(description: Mapping[str, Any], state: Mapping[str, Tensor],
                    weights: Mapping[str, Any]) -> int:
    """How many numbers the model of a description may have.

    Args:
        description (Mapping): Field ``model`` of a checked description.
        state (Mapping[str, Tensor]): The weights of the file.
        weights (Mapping): Files that the user gave.
    """
    # Twice: LoRA, for one, registers the weight of a layer again.
    held = 2 * sum(value.numel() for value in state.values())
    return SPARE + held + 2 * sum(_tower(part, bool(weights)) for part in _parts(description))


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for entry in value.values():
            yield from _parts(entry)


def _tower(part: dict[str, Any], given: bool) -> int:
    if part.get('pretrained') in (None, TINY):
        return 0
    owner = class_of(part)
    field = fields_of(owner).get('pretrained') if owner else None
    if field and isinstance(field.kind, ClipSource):
        found = clip_numbers(part.get('arch', DEFAULT))
        return min(found, LARGEST_UNKNOWN) if part['pretrained'] == FILE and not given else found
    return LARGEST_DINO


@contextmanager
def limited(numbers: int, name: str) -> Iterator[None]:
    """Inside the block, this thread builds modules of at most so many numbers.

    Args:
        numbers (int): Parameters and buffers together.
        name (str): What messages call the checkpoint.
    """
    left, thread = numbers, get_ident()

    def count(module: Any, key: str, value: Tensor | None) -> None:
        nonlocal left
        if value is None or get_ident() != thread:
            return
        left -= value.numel()
        if left < 0:
            raise FileError(
                name, f'the description asks for a model of more than {numbers:,} numbers, and '
                'the file holds fewer', 'It is damaged, or made to exhaust the memory: take a file '
                'from another source.', 'meta.description')

    handles = [nn_module.register_module_parameter_registration_hook(count),
               nn_module.register_module_buffer_registration_hook(count)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
