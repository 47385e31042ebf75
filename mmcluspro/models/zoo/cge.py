"""CGE: compositional graph embeddings."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width, Widths, choice
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads.base import CompositionHead, Portable
from mmcluspro.models.heads.three_path import ThreePathHead
from mmcluspro.models.structures import Features, Logits, Scores, Texts
from mmcluspro.models.text.words import WordTableText
from mmcluspro.registry import MODELS
from mmcluspro.utils.device import free_bytes

from .common import label_edges, pair_rows

SMALL = 1 << 28  # bytes that are there on any machine


class GraphConv(nn.Module):
    """One layer in two halves: what a node sends, and what it makes of what it receives.

    Args:
        in_dim (int): Width of the states.
        out_dim (int): Width of the new states.
        dropout (float): On the states.
        last (bool): Leave the ReLU out.
    """

    def __init__(self, in_dim: int, out_dim: int, dropout: float, last: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(in_dim, out_dim)
        self.dropout = nn.Dropout(dropout)
        self.last = last

    def send(self, states: Tensor) -> Tensor:
        """States (n, in_dim) → messages (n, out_dim)."""
        return F.linear(self.dropout(states), self.linear.weight)

    def receive(self, messages: Tensor) -> Tensor:
        """Averaged messages (n, out_dim) → states (n, out_dim)."""
        states = messages + self.linear.bias
        return states if self.last else states.relu()


class GraphStates(NamedTuple):
    """Result of one pass over the graph."""

    words: tuple[Tensor, Tensor]  # vectors of attributes (A, width) and objects (O, width)
    messages: list[Tensor]  # of attributes and objects in each layer, (A + O, width of the layer)
    names: Tensor  # last states of attributes and objects, (A + O, out_dim)
    pairs: Tensor  # last states of the pairs of the graph, (N, out_dim)


def name_rows(pairs: Tensor, weights: Tensor, attributes: int, objects: int) -> Tensor:
    r"""Rows of attributes and objects of the normalised adjacency, sparse.

    An attribute hears itself (weight 1), and by each of its pairs the object and the pair (weight
    w each); objects likewise. Rows are divided by their sum, :math:`1 + 2 \sum w`. Rows of pairs
    need no matrix: a pair hears itself, its attribute and its object, one third each, or without
    loops the two names, one half each.

    Args:
        pairs (Tensor): Attribute and object of the pairs in the graph, shape (N, 2).
        weights (Tensor): Of the edges of each pair, shape (N,).
        attributes (int): A.
        objects (int): O.

    Returns:
        Tensor: Sparse, shape (A + O, A + O + N).
    """
    size = attributes + objects
    source, target = label_edges(pairs, attributes, objects)
    names, own = target < size, torch.arange(size, device=pairs.device)
    rows, columns = torch.cat([own, target[names]]), torch.cat([own, source[names]])
    values = torch.cat([weights.new_ones(size), weights.repeat(4)])
    total = torch.zeros(size, device=pairs.device, dtype=values.dtype).index_add_(0, rows, values)
    return torch.sparse_coo_tensor(
        torch.stack([rows, columns]), values / total[rows], (size, size + len(pairs)),
        check_invariants=False).coalesce()


@MODELS.register_module()
class GraphText(WordTableText):
    r"""Features of attributes, objects and pairs by graph convolutions.

    Nodes are the attributes, the objects and the pairs that :meth:`connect` names. A pair is
    connected with its attribute and its object, these two with each other, and every node with
    itself. With :math:`\hat A` the adjacency with rows that sum to one,

    .. math:: H^{l+1} = \mathrm{ReLU}(\hat A\, \mathrm{dropout}(H^l)\, W^l + b^l)

    without the ReLU in the last layer. :math:`H^0` are word vectors; that of a pair is the mean of
    its two.

    **Pairs that are not in the graph** (the open world, or a list with new words) hear their
    attribute and object as all pairs do, but are not heard. So the features of other pairs do not
    depend on what else is asked. A new name hears only itself.

    Args:
        out_dim (int): Width of the features, that of the image side. Defaults to 512.
        hidden_dims (Sequence[int]): Widths between the layers. Defaults to (4096,).
        dropout (float): On the input of each layer. Defaults to 0.5.
        last_dropout (bool): Whether the last layer has it, too. Defaults to True.
        pair_loops (bool): Whether pairs are connected with themselves. Names always are. Defaults
            to True.
        **kwargs: As in :class:`~mmcluspro.models.text.WordTableText`.
    """

    node_pairs: Tensor
    weights: Tensor

    def __init__(self, out_dim: Width = 512, hidden_dims: Widths = (4096, ),
                 dropout: Unsaved[float] = 0.5, last_dropout: Unsaved[bool] = True,
                 pair_loops: bool = True, **kwargs: Any) -> None:
        super().__init__(out_dim=out_dim, **kwargs)
        self.pair_loops = pair_loops
        dims = [self.width, *hidden_dims, out_dim]
        count = len(dims) - 1
        self.convs = nn.ModuleList(
            GraphConv(dims[i], dims[i + 1], dropout if i < count - 1 or last_dropout else 0.0,
                      i == count - 1) for i in range(count))
        self.connect(torch.zeros(0, 2, dtype=torch.long, device='cpu'))

    def connect(self, pairs: Tensor, weights: Tensor | None = None) -> None:
        """Sets which pairs are nodes.

        Args:
            pairs (Tensor): Sorted by attribute and object, shape (N, 2).
            weights (Tensor, optional): Of the edges of each pair, shape (N,); a checkpoint holds
                them. Defaults to None, 1 for all pairs.
        """
        device = self.logit_scale.device
        self.register_buffer('node_pairs', pairs.to(device), persistent=False)
        self.register_buffer(
            'weights', torch.ones(len(pairs), device=device) if weights is None
            else weights.to(device), persistent=weights is not None)
        self.forget()

    @property
    def layers(self) -> list[GraphConv]:
        """The convolutions, first to last."""
        return cast(list[GraphConv], list(self.convs))

    def forget(self) -> None:
        super().forget()
        self._rows: Tensor | None = None
        self._rows_version = -1

    @torch.no_grad()
    def reweigh(self, weights: Tensor) -> None:
        """Sets the weights of the edges, shape (N,)."""
        self.weights.copy_(weights)
        self.forget()

    def name_rows(self) -> Tensor:
        """:func:`name_rows` of this graph, kept until it changes."""
        if self._rows is None or self.weights._version != self._rows_version:
            self._rows_version = self.weights._version  # loading a checkpoint writes into it
            self._rows = name_rows(self.node_pairs, self.weights, len(self.attributes),
                                   len(self.objects))
        return self._rows

    def _require_room(self, device: torch.device) -> None:
        """Refuses a graph that would fill the memory: a small file can name many pairs."""
        widest = max(layer.linear.out_features for layer in self.layers)
        needed = 3 * 4 * len(self.node_pairs) * widest  # states, messages, and what is heard
        if needed > SMALL and needed > (free := free_bytes(device)):
            raise ValueError(
                f'The graph of {len(self.node_pairs):,} pairs with states of {widest} numbers '
                f'takes {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free. Use a machine '
                "with more memory, or train with head.nodes='known'.")

    def parts(self) -> Any:
        """Runs the graph; dropout is drawn here."""
        if not self.training:
            self._require_room(self.node_pairs.device)
        words = self.attr_table(), self.obj_table()
        start = len(words[0])
        attr, obj = self.node_pairs[:, 0], start + self.node_pairs[:, 1]
        names, messages = torch.cat(words), []
        pairs = (names[attr] + names[obj]) / 2
        # Sparse products have no half precision.
        with torch.autocast(names.device.type, enabled=False):
            for layer in self.layers:
                from_names, from_pairs = layer.send(names), layer.send(pairs)
                heard = torch.sparse.mm(self.name_rows(), torch.cat([from_names, from_pairs]))
                names = layer.receive(heard)
                pairs = layer.receive(self.heard(from_pairs, from_names[attr], from_names[obj]))
                messages.append(from_names)
        return GraphStates(words, messages, names, pairs)

    def heard(self, own: Tensor, attr: Tensor, obj: Tensor) -> Tensor:
        """What pairs hear of their own messages and those of their names, (P, width) each."""
        return (own + attr + obj) / 3 if self.pair_loops else (attr + obj) / 2

    def embed(self, path: str, parts: Any, pairs: Tensor | None) -> Tensor:
        start = len(parts.words[0])
        if path != 'composition' or pairs is None:
            return parts.names[:start] if path == 'attribute' else parts.names[start:]
        self._check_range(pairs)
        pairs = pairs.to(parts.names.device)
        rows = pair_rows(self.node_pairs, pairs, len(self.objects))
        if bool((rows >= 0).all()):
            return parts.pairs[rows]
        found = parts.pairs.new_empty(len(pairs), self.out_dim)
        found[rows >= 0] = parts.pairs[rows[rows >= 0]]
        others = pairs[rows < 0].split(self.chunk_size)
        found[rows < 0] = torch.cat([self.compose(parts, chunk) for chunk in others])
        return found

    def compose(self, parts: Any, pairs: Tensor) -> Tensor:
        """Features of pairs that hear, but are not heard, shape (P, out_dim)."""
        attr, obj = pairs[:, 0], pairs[:, 1]
        states = (parts.words[0][attr] + parts.words[1][obj]) / 2
        start = len(parts.words[0])
        with torch.autocast(states.device.type, enabled=False):
            for layer, names in zip(self.layers, parts.messages):
                states = layer.receive(
                    self.heard(layer.send(states), names[attr], names[start + obj]))
        return states


NODES = ('known', 'seen', 'all')
Nodes = Annotated[str, choice(*NODES)]
MOST_NODES = 10_000_000


class GraphHead(ThreePathHead):
    """The composition path alone, with pairs from a graph.

    Args:
        *args: ``space`` and ``text`` of
            :class:`~mmcluspro.models.heads.base.CompositionHead`; the text is a
            :class:`~.GraphText`.
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

    Graph convolutions embed the pairs (:class:`~.GraphText`). With the image feature f
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
