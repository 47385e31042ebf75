"""What the blocks inside a vision transformer return."""
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


def layer_numbers(layers: Sequence[int], blocks: nn.Module | None, name: str) -> tuple[int, ...]:
    """The numbers of ``backbone.out_layers``, counted from 0 and in order.

    Args:
        layers (Sequence[int]): Numbers of blocks, negative ones from the end.
        blocks (nn.ModuleList | None): The blocks; None if the tower has none.
        name (str): How to call the tower in messages.
    """
    if not layers:
        return ()
    if blocks is None:
        raise ValueError(f'backbone.out_layers needs a vision transformer; {name} is none. Use '
                         'a ViT such as ViT-B-32, ViT-L-14 or DINOv2.')
    size = len(blocks)  # type: ignore[arg-type]
    outside = [number for number in layers if not -size <= number < size]
    if outside:
        raise ValueError(f'backbone.out_layers must lie in [{-size}, {size}) for the {size} '
                         f'blocks of {name}, got {outside[0]}.')
    return tuple(sorted({number % size for number in layers}))


@contextmanager
def listening(blocks: Any, numbers: Sequence[int]) -> Iterator[dict[str, Tensor]]:
    """Collects ``layer_<n>``, what block n returns, while the tower runs inside."""
    found: dict[str, Tensor] = {}

    def listen(number: int) -> Any:
        def keep(_: Any, __: Any, output: Tensor) -> None:
            found[f'layer_{number}'] = output
        return blocks[number].register_forward_hook(keep)

    handles = [listen(number) for number in numbers]
    try:
        yield found
    finally:  # not in backward, where checkpointed blocks run again
        for handle in handles:
            handle.remove()
