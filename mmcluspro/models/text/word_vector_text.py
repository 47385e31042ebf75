"""Text side without CLIP: word vectors and a small composer (the setting of Table 9)."""
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mmcluspro.registry import MODELS

from ..mlp import mlp
from .word_table_text import WordTableText


@MODELS.register_module()
class WordVectorText(WordTableText):
    """Features of attributes, objects and pairs from word vectors.

    Attributes and objects are projected, each kind with its own layer; a pair is composed by an
    MLP from the two word vectors.

    Args:
        attributes (Sequence[str]): Raw names.
        objects (Sequence[str]): Raw names.
        path (str, optional): As in :class:`WordTableText`.
        out_dim (int): Width of the features, that of the image side. Defaults to 768.
        hidden_dim (int): Hidden width of the composer. Defaults to 768.
        dropout (float): Dropout in the composer. Defaults to 0.0.
        norm (bool): Whether the hidden layer of the composer has a LayerNorm. Defaults to False.
        last_act (bool): Whether the composer ends with a ReLU. Defaults to False.
        **kwargs: As in :class:`WordTableText`.
    """

    def __init__(self, attributes: Sequence[str], objects: Sequence[str], path: str | Path | None,
                 out_dim: int = 768, hidden_dim: int = 768, dropout: float = 0.0,
                 norm: bool = False, last_act: bool = False, **kwargs: Any) -> None:
        super().__init__(attributes, objects, path, out_dim, **kwargs)
        self.attr_proj = nn.Linear(self.width, out_dim)
        self.obj_proj = nn.Linear(self.width, out_dim)
        self.composer = mlp((2 * self.width, hidden_dim, out_dim), norm, dropout, last_act)

    def single(self, path: str, vectors: Tensor) -> Tensor:
        return (self.attr_proj if path == 'attribute' else self.obj_proj)(vectors)

    def compose(self, parts: tuple[Tensor, Tensor], pairs: Tensor) -> Tensor:
        return self.composer(super().compose(parts, pairs))
