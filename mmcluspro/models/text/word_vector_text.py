"""Text side without CLIP: word vectors and a small composer (the setting of Table 9)."""
from collections.abc import Mapping, Sequence
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
        learn_vectors (bool): Whether the word vectors train. Defaults to False.
        temperature (float): Of the cosine classifiers. Defaults to 0.05.
        learn_temperature (bool): Whether ``logit_scale`` trains. Defaults to False.
        chunk_size (int): Number of pairs that are composed together. Defaults to 65536.
        readable (dict | callable | str | None): Overrides of the readable names, see
            :func:`mmcluspro.datasets.resolve_readable`. Defaults to None.
        width (int): Width of the vectors where there is no file. Defaults to 300.
        norm (bool): Whether the hidden layer of the composer has a LayerNorm. Defaults to False.
        last_act (bool): Whether the composer ends with a ReLU. Defaults to False.
    """

    def __init__(self,
                 attributes: Sequence[str],
                 objects: Sequence[str],
                 path: str | Path | None,
                 out_dim: int = 768,
                 hidden_dim: int = 768,
                 dropout: float = 0.0,
                 learn_vectors: bool = False,
                 temperature: float = 0.05,
                 learn_temperature: bool = False,
                 chunk_size: int = 65536,
                 readable: Mapping[str, str] | Any | None = None,
                 width: int = 300,
                 norm: bool = False,
                 last_act: bool = False) -> None:
        super().__init__(attributes, objects, path, out_dim, learn_vectors, temperature,
                         learn_temperature, chunk_size, readable, width)
        self.attr_proj = nn.Linear(self.width, out_dim)
        self.obj_proj = nn.Linear(self.width, out_dim)
        self.composer = mlp((2 * self.width, hidden_dim, out_dim), norm, dropout, last_act)

    def single(self, path: str, vectors: Tensor) -> Tensor:
        return (self.attr_proj if path == 'attribute' else self.obj_proj)(vectors)

    def compose(self, parts: tuple[Tensor, Tensor], pairs: Tensor) -> Tensor:
        return self.composer(super().compose(parts, pairs))
