"""Text sides without a tower: word vectors of the names, and a small composer (Table 9)."""
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.registry import MODELS

from ..mlp import mlp
from .name_table import NameTable
from .text_encoder import TextEncoder, log_scale
from .word_vectors import embed_names


@MODELS.register_module()
class WordTableText(TextEncoder):
    """Plain word vectors of attributes and objects; a pair is their concatenation.

    Subclasses override :meth:`compose`, which embeds pairs, and :meth:`single`, which embeds
    attributes or objects.

    Args:
        attributes (Sequence[str]): Raw names.
        objects (Sequence[str]): Raw names.
        path (str, optional): File with word vectors, see :func:`load_word_vectors`, or 'tiny_clip'
            for the features of the names in the shipped CLIP. With None, the vectors come from a
            checkpoint, and new names cannot be added.
        out_dim (int, optional): Width of the features of pairs. Defaults to None, that of two
            word vectors.
        learn_vectors (bool): Train the word vectors. Defaults to False.
        temperature (float): Of the cosine classifiers. Defaults to 0.05.
        learn_temperature (bool): Train ``logit_scale``. Defaults to False.
        chunk_size (int): Number of pairs that are composed together. Defaults to 65536.
        readable (dict | callable | str | None): Overrides of the readable names, see
            :func:`mmcluspro.datasets.resolve_readable`. Defaults to None.
        width (int): Width of the vectors without a file. Defaults to 300.
    """

    def __init__(self,
                 attributes: Sequence[str],
                 objects: Sequence[str],
                 path: str | Path | None,
                 out_dim: int | None = None,
                 learn_vectors: bool = False,
                 temperature: float = 0.05,
                 learn_temperature: bool = False,
                 chunk_size: int = 65536,
                 readable: Mapping[str, str] | Any | None = None,
                 width: int = 300) -> None:
        if chunk_size < 1:
            raise ValueError(f'text.chunk_size must be at least 1, got {chunk_size}.')
        super().__init__(attributes, objects, out_dim or 2 * width, log_scale(temperature),
                         learn_temperature, readable)
        self.path = path
        self.chunk_size = chunk_size
        vectors = torch.zeros(len(attributes) + len(objects), width) if path is None else (
            self._vectors([*attributes, *objects]))
        self.width = vectors.shape[1]
        self.out_dim = out_dim or 2 * self.width
        self.attr_table = NameTable(vectors[:len(attributes)].split(1), learn_vectors)
        self.obj_table = NameTable(vectors[len(attributes):].split(1), learn_vectors)

    def parts(self) -> tuple[Tensor, Tensor]:
        return self.attr_table(), self.obj_table()

    def embed(self, path: str, parts: tuple[Tensor, Tensor], pairs: Tensor | None) -> Tensor:
        if path != 'composition' or pairs is None:
            return self.single(path, parts[0] if path == 'attribute' else parts[1])
        self._check_range(pairs)
        chunks = pairs.to(parts[0].device).split(self.chunk_size)
        return torch.cat([self.compose(parts, chunk) for chunk in chunks])

    def single(self, path: str, vectors: Tensor) -> Tensor:
        """Features of names from their vectors (n, width).

        Args:
            path (str): 'attribute' or 'object'.
            vectors (Tensor): Of all names of this kind.
        """
        return vectors

    def compose(self, parts: tuple[Tensor, Tensor], pairs: Tensor) -> Tensor:
        """Features of pairs, shape (P, out_dim).

        Args:
            parts (tuple[Tensor, Tensor]): Vectors of all attributes and of all objects.
            pairs (Tensor): Attribute and object of each pair, shape (P, 2).
        """
        return torch.cat([parts[0][pairs[:, 0]], parts[1][pairs[:, 1]]], dim=1)

    def pretrained(self, names: Sequence[str]) -> Tensor:
        """Word vectors of raw names as the file has them, unit norm, shape (n, width).

        A model of a checkpoint without the file takes those of the checkpoint, which are the same
        unless they were trained.
        """
        if self.path is not None:
            return self._vectors(names)
        own = dict(zip((*self.objects, *self.attributes),
                       (*self.obj_table().detach(), *self.attr_table().detach())))
        if not set(names) <= own.keys():
            return self._vectors(names)  # says what to do
        return F.normalize(torch.stack([own[name] for name in names]), dim=1)

    def extend(self, attributes: Sequence[str] = (), objects: Sequence[str] = ()) -> None:
        """Appends names that were not trained."""
        self._check_new(attributes, objects)
        vectors = self._vectors([*attributes, *objects])
        self.attr_table.append(vectors[:len(attributes)].split(1))
        self.obj_table.append(vectors[len(attributes):].split(1))
        self.attributes += tuple(attributes)
        self.objects += tuple(objects)
        self.forget()

    def restore(self) -> None:
        """Removes the names that were added."""
        self.attr_table.restore()
        self.obj_table.restore()
        self.attributes = self.attributes[:len(self.attr_table.lengths)]
        self.objects = self.objects[:len(self.obj_table.lengths)]
        self.forget()

    def _vectors(self, names: Sequence[str]) -> Tensor:
        if self.path is None:
            raise ValueError(
                f'The model has no vectors for {", ".join(map(repr, names[:5]))}: they come from '
                'the file of word vectors that it was trained with. Give it with --weights '
                "words=FILE (weights=dict(words='FILE') in Python), or leave the names out.")
        # Unit norm: frequent words have long vectors, which says nothing about their meaning.
        return F.normalize(embed_names(names, self.path, self.readable), dim=1)


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
