"""CGE: compositional graph embeddings."""
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from torch import Tensor

from mmcluspro.fields import choice
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads.base import CompositionHead, Portable
from mmcluspro.models.heads.three_path import ThreePathHead
from mmcluspro.models.structures import Features, Logits, Scores, Texts
from mmcluspro.registry import MODELS

from .graph_text import GraphText

NODES = ('known', 'seen', 'all')
Nodes = Annotated[str, choice(*NODES)]
MOST_NODES = 10_000_000


class GraphHead(ThreePathHead):
    """The composition path alone, with pairs from a graph.

    Args:
        *args: ``space`` and ``text`` of
            :class:`~mmcluspro.models.heads.base.CompositionHead`; the text is a
            :class:`~.graph_text.GraphText`.
        nodes (str): Pairs that are nodes: 'known', the pairs of all phases, as in the published
            code, which so knows the unseen pairs of the closed world in training; 'seen', those
            of training; 'all', every attribute with every object. Defaults to 'known'.
        **kwargs: As in :class:`~mmcluspro.models.heads.base.CompositionHead`.
    """

    fixed: tuple[str, ...] = ('fusion', )

    def __init__(self, *args: Any, nodes: Nodes = 'known', **kwargs: Any) -> None:
        super().__init__(*args, fusion='composition', loss_weights=dict(attr=0, obj=0), **kwargs)
        if nodes not in NODES:
            raise ValueError(f'head.nodes must be one of {NODES}, got {nodes!r}.')
        if not isinstance(self.text, GraphText):
            raise ValueError(f'{type(self).__name__} needs the text side mmcluspro.GraphText, got '
                             f'{type(self.text).__name__}: set model.head.text.type.')
        self.nodes = nodes
        self.text.connect(self.node_pairs())

    def node_pairs(self) -> Tensor:
        """Attribute and object of the pairs in the graph, sorted, shape (N, 2)."""
        if self.nodes != 'all':
            return (self._known if self.nodes == 'known' else self._train).pairs
        sizes = len(self.space.attributes), len(self.space.objects)
        if sizes[0] * sizes[1] > MOST_NODES:
            raise ValueError(f"head.nodes='all' makes {sizes[0]:,} x {sizes[1]:,} pairs nodes, "
                             f"more than {MOST_NODES:,}: use 'known'.")
        return torch.cartesian_prod(*(torch.arange(size, device='cpu') for size in sizes))


@MODELS.register_module()
class CGEHead(GraphHead):
    r"""CGE (Naeem et al., "Learning Graph Embeddings for Compositional Zero-shot Learning", 2021).

    Graph convolutions embed the pairs (:class:`~.graph_text.GraphText`). With the image feature f
    of any norm and the unit-norm embedding t of a pair,

    .. math:: s(x, a, o) = f^\top t_{ao}

    and the loss is the cross-entropy over the seen pairs. There is no temperature: the length of f
    learns it. Scores are logits.
    """

    link = 'identity'

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """Dot products with the embeddings of the candidates.

        Args:
            feats (Features): Of B images.
            candidates (Candidates): What can be answered.
        """
        return Scores(self.logits(feats, candidates.to(self.device), False).composition)

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        """Dot products, in training and in testing.

        Args:
            features (Features): Of B images.
            texts (Texts): With the unit-norm embeddings of the pairs.
            candidates (Candidates): Not used.
        """
        with torch.autocast(features.composition.device.type, enabled=False):
            f = features.composition.float()
            return Logits(None, None, f @ texts.composition.float().T)

    def portable(self) -> Portable:
        """Not possible: exported features have unit norm, and the length of f is part of s."""
        return CompositionHead.portable(self)
