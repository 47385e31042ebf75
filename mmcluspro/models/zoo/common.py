"""What several methods share.

Attention of texts and images, rows of pairs, the label graph, and the heads that compare by
distance or classify attribute and object apart.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from open_clip.transformer import QuickGELU
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads.base import CompositionHead
from mmcluspro.models.structures import Features, Logits, Scores, Texts, TrainStep, as_features

HEAD_WIDTH = 64


class AttentionBlock(nn.Module):
    """x ← x + attention(norm(x), norm(y)), then x ← x + MLP(norm(x)).

    Both branches end with zeros, so that a block starts as the identity.

    Args:
        dim (int): Width D. Heads are 64 wide; a D that 64 does not divide has one head.
        cross (bool): Whether y is another sequence with a norm of its own, instead of x.
        attn_drop (float): Dropout rate of the attention weights. Defaults to 0.0.
        mlp_drop (float): Dropout rate inside the MLP. Defaults to 0.0.
        identity (bool): Start as the identity; else at random. Defaults to True.
        drop_twice (bool): Dropout before the activation and at the end of the MLP, instead of
            after the activation. Defaults to False.
    """

    def __init__(self, dim: int, cross: bool, attn_drop: float = 0.0, mlp_drop: float = 0.0,
                 identity: bool = True, drop_twice: bool = False) -> None:
        super().__init__()
        heads = dim // HEAD_WIDTH if dim % HEAD_WIDTH == 0 else 1
        self.norm_x = nn.LayerNorm(dim)
        self.norm_y = nn.LayerNorm(dim) if cross else None
        self.attn = nn.MultiheadAttention(dim, heads, dropout=attn_drop, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), QuickGELU(), nn.Dropout(mlp_drop),
                                 nn.Linear(4 * dim, dim))
        self.drop_twice = drop_twice
        if identity:
            for last in (self.attn.out_proj, self.mlp[-1]):
                nn.init.zeros_(last.weight)  # type: ignore[arg-type]
                nn.init.zeros_(last.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """x (B, L, D) and, for a cross block, y (B, M, D) → (B, L, D).

        A sequence that all images share has a batch of 1. It is normalised and projected once.
        """
        query = self.norm_x(x)
        read = query if y is None or self.norm_y is None else self.norm_y(y)
        x = x + self._attention(query, read)
        return x + self._mlp(self.norm(x))

    def _mlp(self, x: Tensor) -> Tensor:
        if not self.drop_twice:
            return self.mlp(x)
        widen, act, drop, narrow = self.mlp
        return drop(narrow(act(drop(widen(x)))))

    def _attention(self, query: Tensor, read: Tensor) -> Tensor:
        """Computes ``self.attn(query, read, read)`` without projecting anything twice."""
        attn = self.attn
        weight, bias = attn.in_proj_weight.chunk(3), attn.in_proj_bias.chunk(3)
        if read.shape[1] == 1 and not (self.training and attn.dropout):
            # The softmax over one key is 1, so its value is the answer to every query.
            out = attn.out_proj
            return F.linear(read, out.weight @ weight[2], out.weight @ bias[2] + out.bias)
        q, k, v = (F.linear(x, *part).unflatten(-1, (attn.num_heads, -1)).transpose(1, 2)
                   for x, *part in zip((query, read, read), weight, bias))
        q, k, v = (x.expand(max(len(q), len(k)), -1, -1, -1) for x in (q, k, v))
        found = F.scaled_dot_product_attention(
            q, k, v, dropout_p=attn.dropout if self.training else 0.0)
        return attn.out_proj(found.transpose(1, 2).flatten(2))


def primitive_means(values: Tensor, labels: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Means of the pairs that share an attribute, or an object.

    Args:
        values (Tensor): One entry per pair, shape (P, D).
        labels (Tensor): Attribute or object of each pair, in [0, size), shape (P,).
        size (int): Number of attributes or objects C.

    Returns:
        tuple[Tensor, Tensor]: Means, zero for a primitive without pairs, shape (C, D), and the
        number of pairs of each, shape (C,).
    """
    count = values.new_zeros(size).index_add(0, labels, values.new_ones(len(labels)))
    total = values.new_zeros(size, values.shape[1]).index_add(0, labels, values)
    return total / count.clamp_min(1)[:, None], count


def decomposed(logits: Tensor, labels: Tensor, size: int) -> Tensor:
    """Logits of attributes or objects: means over their pairs, −∞ for one without pairs.

    Args:
        logits (Tensor): Of pairs, shape (B, P).
        labels (Tensor): Attribute or object of each pair, shape (P,).
        size (int): Number of attributes or objects C.

    Returns:
        Tensor: Shape (B, C).
    """
    means, count = primitive_means(logits.T, labels, size)
    return means.T.masked_fill(count == 0, -float('inf'))


def require_one_path(head: nn.Module, fusion: str) -> None:
    """Refuses a fusion that asks for paths which a method does not score with."""
    if fusion != 'composition':
        raise ValueError(f"{type(head).__name__} scores compositions only: head.fusion must be "
                         f"'composition', got {fusion!r}.")


def pair_rows(known: Tensor, asked: Tensor, objects: int) -> Tensor:
    """Place of pairs in a sorted list.

    Args:
        known (Tensor): Attribute and object of each, sorted by both, shape (N, 2).
        asked (Tensor): The pairs to look for, shape (P, 2).
        objects (int): Number of objects.

    Returns:
        Tensor: Rows of ``known``, -1 for pairs that are not there, shape (P,).
    """
    if not len(known):
        return torch.full_like(asked[:, 0], -1)
    keys, wanted = (pairs[:, 0] * objects + pairs[:, 1] for pairs in (known, asked))
    places = torch.searchsorted(keys, wanted.contiguous()).clamp_max(len(keys) - 1)
    return torch.where(keys[places] == wanted, places, -1)


def sharing(same: Tensor, other: Tensor) -> Tensor:
    """Marks images of a batch with one label in common that differ in the other, shape (B, B).

    Args:
        same (Tensor): The label to share, shape (B,).
        other (Tensor): The label to differ in, shape (B,).
    """
    return (same[:, None] == same) & (other[:, None] != other)


def draw(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Draws one of the allowed images for each image.

    Args:
        allowed (Tensor): Flags, shape (B, B).

    Returns:
        tuple[Tensor, Tensor]: Which image, and whether there is one, shape (B,) each.
    """
    chance = torch.rand(allowed.shape, device=allowed.device).masked_fill_(~allowed, -1)
    return chance.argmax(dim=1), allowed.any(dim=1)


def label_edges(pairs: Tensor, num_attributes: int, num_objects: int) -> tuple[Tensor, Tensor]:
    """Edges attribute–object, pair–attribute and pair–object of each pair, in both directions.

    Args:
        pairs (Tensor): Attribute and object of each pair, shape (P, 2).
        num_attributes (int): A.
        num_objects (int): O.

    Returns:
        tuple[Tensor, Tensor]: Source and target nodes, shape (6P,) each. Nodes are the attributes,
        then the objects, then the pairs.
    """
    attr, obj = pairs[:, 0], num_attributes + pairs[:, 1]
    node = num_attributes + num_objects + torch.arange(len(pairs), device=pairs.device)
    one, other = torch.cat([attr, node, node]), torch.cat([obj, attr, obj])
    return torch.cat([one, other]), torch.cat([other, one])


class LabelGraph(nn.Module):
    """The edges of :func:`label_edges`, and loops.

    Args:
        pairs (Tensor): Attribute and object of each pair, shape (P, 2).
        num_attributes (int): A.
        num_objects (int): O.
    """

    source: Tensor
    target: Tensor

    def __init__(self, pairs: Tensor, num_attributes: int, num_objects: int) -> None:
        super().__init__()
        source, target = label_edges(pairs.cpu(), num_attributes, num_objects)
        # Derived from the label space, so that a checkpoint need not hold them.
        self.register_buffer('source', source, persistent=False)
        self.register_buffer('target', target, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Mean of each node and its neighbours, shape (nodes, D); loops are counted once."""
        total = x.index_add(0, self.target, x.index_select(0, self.source))
        degree = x.new_ones(len(x)).index_add(0, self.target, x.new_ones(len(self.target)))
        return total / degree[:, None]


class GraphConvolutions(nn.Module):
    """H ← relu(Â dropout(H) W + b) for the hidden layers, without relu for the last.

    Args:
        dim (int): Width D of the nodes, in and out.
        hidden (int): Width of the hidden layer.
        dropout (float): Dropout rate before each layer.
    """

    def __init__(self, dim: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, graph: LabelGraph) -> Tensor:
        """x (nodes, D) → (nodes, D). Â averages and W is linear, so they can be swapped."""
        x = torch.relu(self.first(graph(self.drop(x))))
        return self.last(graph(self.drop(x)))


def other_rows(rows: Tensor, count: int, shape: Sequence[int] = ()) -> Tensor:
    """Rows drawn evenly from the ``count - 1`` others.

    Args:
        rows (Tensor): The row of each image, shape (B,).
        count (int): Number of rows, at least 2.
        shape (Sequence[int]): How many are drawn for each image. Defaults to (), one.

    Returns:
        Tensor: Shape (B, *shape).
    """
    steps = torch.randint(1, count, (len(rows), *shape), device=rows.device)
    return (rows.view(-1, *[1] * len(shape)) + steps) % count


class DistanceHead(CompositionHead):
    """Scores are -‖f_c - t_c‖² of embeddings that are not normalised.

    Training pulls an image to its pair and pushes it from one other seen pair, drawn at random:

        L = max(0, ‖f_c - t_pos‖ - ‖f_c - t_neg‖ + margin)

    Args:
        *args: ``space`` and ``text`` of :class:`CompositionHead`.
        margin (float): Of the triplet loss. Defaults to 0.5.
        **kwargs: As in :class:`CompositionHead`.
    """

    link = 'identity'

    def __init__(self, *args: Any, margin: Unsaved[float] = 0.5, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if margin < 0:
            raise ValueError(f'head.margin must not be negative, got {margin}.')
        self.margin = margin

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """Negative squared distances to the pairs.

        Args:
            feats (Features): Of B images.
            candidates (Candidates): What can be answered.
        """
        texts = self.texts(candidates.to(self.device), primitives=False)
        return Scores(self.compare(as_features(feats).composition, texts.composition))

    def compare(self, features: Tensor, texts: Tensor) -> Tensor:
        """-‖f - t‖² for f (B, D) and t (P, D), in float32, shape (B, P)."""
        with torch.autocast(features.device.type, enabled=False):
            f, t = features.float(), texts.float()
            return 2 * f @ t.T - f.square().sum(1, keepdim=True) - t.square().sum(1)

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Embeddings of the seen pairs and scores over them."""
        candidates = self.train_candidates
        texts = self.texts(candidates, primitives=False)
        logits = self.compare(features.composition, texts.composition)
        return TrainStep(features, texts, Logits(None, None, logits), labels, candidates)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """The triplet loss."""
        texts, rows = step.texts.composition, step.labels['pair']
        negative = texts[other_rows(rows, len(texts))]
        return dict(triplet_loss=F.triplet_margin_loss(
            step.features.composition.float(), texts[rows], negative, margin=self.margin))


class ProductHead(CompositionHead):
    """Scores are log p(a) + log p(o). A child gives ``primitive_logits``.

    Args:
        *args: ``space`` and ``text`` of :class:`CompositionHead`.
        **kwargs: As in :class:`CompositionHead`.
    """

    link = 'identity'

    def primitive_logits(self, features: Features, candidates: Candidates) -> tuple[Tensor, Tensor]:
        """Logits of the attributes (B, A) and objects (B, O) of candidates."""
        raise NotImplementedError

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """log p(a) + log p(o), each over the attributes or objects of the candidates.

        Args:
            feats (Features): Of B images.
            candidates (Candidates): What can be answered.
        """
        candidates = candidates.to(self.device)
        logits = self.primitive_logits(as_features(feats), candidates)
        attr, obj = (part.float().log_softmax(dim=1) for part in logits)
        return Scores(_sum(attr, obj, candidates), attr.exp(), obj.exp())

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Logits of attributes and objects, and of the seen pairs; there are no texts of pairs."""
        candidates = self.train_candidates
        attr, obj = self.primitive_logits(features, candidates)
        pair = _sum(attr.log_softmax(dim=1), obj.log_softmax(dim=1), candidates)
        texts = Texts(None, None, pair.new_zeros(len(candidates), 0))
        return TrainStep(features, texts, Logits(attr, obj, pair), labels, candidates)

    def trained(self, logits: Tensor, kind: str, candidates: Candidates) -> Tensor:
        """The columns of candidates of a classifier with a column for each trained name.

        Args:
            logits (Tensor): Shape (B, n).
            kind (str): 'attribute' or 'object'.
            candidates (Candidates): What can be answered.
        """
        if candidates.all_names:
            return logits
        places = getattr(candidates, f'text_{kind}s')
        new = [name for name, place in zip(getattr(candidates, f'{kind}s'), places.tolist())
               if place >= logits.shape[1]]
        if new:
            raise ValueError(
                f'{type(self).__name__} has a classifier of the {logits.shape[1]} {kind}s that it '
                f'was trained with and cannot answer {", ".join(map(repr, new[:5]))}: leave these '
                f'{kind}s out, or use a method that composes word vectors, such as CompCos.')
        return logits[:, places]


def _sum(attr: Tensor, obj: Tensor, candidates: Candidates) -> Tensor:
    return attr[:, candidates.pairs[:, 0]] + obj[:, candidates.pairs[:, 1]]
