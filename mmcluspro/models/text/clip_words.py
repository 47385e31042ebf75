"""Word vectors of the shipped CLIP, for data sets that need no download."""
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..clip_loader import get_tokenizer, load_clip

TINY = 'tiny_clip'


@torch.no_grad()
def clip_vectors(words: Sequence[str]) -> Tensor:
    """Features of the text tower for ``a photo of <word>``, shape (n, D), not normalised.

    Args:
        words (Sequence[str]): Readable names; the tower knows those of Shapes.
    """
    model, tokenizer = _tower()
    with torch.device('cpu'):
        return model.encode_text(tokenizer([f'a photo of {word}' for word in words])).float()


@lru_cache(maxsize=1)
def _tower() -> tuple[Any, Any]:
    # On the CPU also where a model is built on the meta device; building a tower draws random
    # numbers, which would change the weights of the model that comes after it.
    with torch.device('cpu'), torch.random.fork_rng(devices=[]):
        return load_clip(TINY, TINY), get_tokenizer(TINY)
