"""GIPCOL: the embeddings of the prompt come from a graph of the labels.

Xu, Chai and Kordjamshidi, "GIPCOL: Graph-Injected Soft Prompting for Compositional Zero-Shot
Learning".
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from torch import Tensor

from mmcluspro.fields import Unsaved, integer
from mmcluspro.models.text import SoftPrompt
from mmcluspro.models.text.prompts import Embed, Learn, PromptParts
from mmcluspro.registry import MODELS

from .common import GraphConvolutions, LabelGraph
from .pcvl import PCVLHead


@MODELS.register_module()
class GraphPrompt(SoftPrompt):
    """Prompt [v_1 … v_m, θ_a, θ_o] whose θ are nodes of a graph after two convolutions.

    With the fixed token embeddings e of the names, the nodes start at e_a, e_o and
    (e_a + e_o) / 2 for a pair; θ = Â relu(Â H W_1 + b_1) W_2 + b_2, where Â averages over a node
    and its neighbours (:class:`~mmcluspro.models.zoo.common.LabelGraph`). The context v and
    the convolutions learn. A name that is added after training is a node without neighbours.

    Args:
        attributes (Sequence[str]): Readable names.
        objects (Sequence[str]): Readable names.
        embed (Callable): As in :class:`~mmcluspro.models.text.SoftPrompt`.
        hidden (int): Width of the hidden layer. Defaults to 4096.
        graph_dropout (float): Dropout rate before each convolution. Defaults to 0.5.
        residual (bool): Add the convolutions to e instead of putting them in its place. Defaults
            to False, as published.
        learn (Sequence[str]): ``('context', )``: the names are fixed. Defaults to it.
        **kwargs: As in :class:`~mmcluspro.models.text.SoftPrompt`.
    """

    graph: LabelGraph | None
    pairs: Tensor

    def __init__(self, attributes: Unsaved[Sequence[str]], objects: Unsaved[Sequence[str]],
                 embed: Unsaved[Embed], hidden: Annotated[int, integer(1, 32768)] = 4096,
                 graph_dropout: Unsaved[float] = 0.5, residual: bool = False,
                 learn: Learn = ('context', ), **kwargs: Any) -> None:
        super().__init__(attributes, objects, embed, learn=learn, **kwargs)
        if 'vocabulary' in learn or self.names != 'mean':
            raise ValueError("prompt.learn of GraphPrompt takes 'context' alone, and prompt.names "
                             "'mean': the graph moves one fixed vector per name; got learn="
                             f'{tuple(learn)}, names={self.names!r}.')
        if not 0 <= graph_dropout < 1:
            raise ValueError(f'prompt.graph_dropout must lie in [0, 1), got {graph_dropout}.')
        self.convolutions = GraphConvolutions(self.attributes.vectors.shape[1], hidden,
                                              graph_dropout)
        self.residual = residual
        self.graph = None

    def connect(self, pairs: Tensor) -> None:
        """Sets the pairs of the graph, shape (P, 2); :class:`GIPCOLHead` calls it once."""
        self.graph = LabelGraph(pairs, len(self.attributes.own_lengths),
                                len(self.objects.own_lengths))
        self.register_buffer('pairs', pairs.cpu(), persistent=False)

    def forward(self) -> PromptParts:
        """The parts for one step; the names are those that the graph made."""
        parts = super().forward()
        if self.graph is None:
            raise ValueError('GraphPrompt has no graph: it belongs to mmcluspro.GIPCOLHead, which '
                             'connects the pairs of its label space.')
        tables = self.attributes(), self.objects()
        own = [len(table.own_lengths) for table in (self.attributes, self.objects)]
        named = [table[:size] for table, size in zip(tables, own)]
        pair = (named[0][self.pairs[:, 0]] + named[1][self.pairs[:, 1]]) / 2
        added = [table[size:] for table, size in zip(tables, own)]  # nodes behind the pairs
        nodes = torch.cat([*named, pair, *added])
        moved = self.convolutions(nodes, self.graph)
        if self.residual:
            moved = nodes + moved
        sizes = [*own, len(pair), *map(len, added)]
        attr, obj, _, new_attr, new_obj = moved.split(sizes)
        return PromptParts(parts.contexts, self.dropout(torch.cat([attr, new_attr])),
                           self.dropout(torch.cat([obj, new_obj])))


@MODELS.register_module()
class GIPCOLHead(PCVLHead):
    """Composition path with the prompts of a :class:`GraphPrompt`.

    p(c | x) = softmax_c(f · t_c / τ) and its cross-entropy over the seen pairs. The graph has the
    pairs of all phases, as the closed-world graph of the published code.

    Args:
        *args, **kwargs: As in :class:`PCVLHead`; ``text.prompt.type`` is 'mmcluspro.GraphPrompt'.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not isinstance(getattr(self.text, 'prompt', None), GraphPrompt):
            raise ValueError("GIPCOLHead needs head.text.prompt.type='mmcluspro.GraphPrompt', got "
                             f'{type(getattr(self.text, "prompt", self.text)).__name__}.')
        self.text.prompt.connect(self._known.pairs)
