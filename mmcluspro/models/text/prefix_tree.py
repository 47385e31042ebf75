"""Exact text encoding over a prefix tree (the prompts of Eq. 2 at a quarter of the cost).

In a causal tower the state of a token does not depend on what follows it. So in
``[SOS context attribute object EOS]`` the states of ``SOS context`` are the same for all pairs and
those of ``attribute`` are the same for all its objects: only ``object EOS`` is run for each pair,
reading the keys and values that its ancestors left in every layer.
"""
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Keys(NamedTuple):
    """Keys and values of the tokens of N segments in one layer, for the tokens after them.

    Attributes:
        key (Tensor): Shape (heads, N, L, width / heads).
        value (Tensor): The same shape.
    """
    key: Tensor
    value: Tensor


class Ancestor(NamedTuple):
    """A segment that stands before others.

    Attributes:
        layers (list[Keys]): Its keys in each layer.
        row (Tensor | None): Row of ``layers`` for each descendant, shape (N,); None when all
            descend from the only row.
    """
    layers: list[Keys]
    row: Tensor | None = None

    def at(self, layer: int) -> Keys:
        keys = self.layers[layer]
        if self.row is None:
            return keys
        return Keys(keys.key.index_select(1, self.row), keys.value.index_select(1, self.row))


def grow(blocks: Sequence[Any], tokens: Tensor, ancestors: Sequence[Ancestor] = ()) -> list[Keys]:
    """Runs segments that others descend from.

    Args:
        blocks (Sequence[nn.Module]): open_clip's ``ResidualAttentionBlock`` s.
        tokens (Tensor): Embeddings with positions added, shape (N, L, width).
        ancestors (Sequence[Ancestor]): The segments before them, in order.

    Returns:
        list[Keys]: Their keys in each layer.
    """
    kept = []
    for layer, block in enumerate(blocks):
        query, own = _project(block, tokens)
        kept.append(own)
        if layer + 1 < len(blocks):  # nobody reads the states after the last layer
            before = [ancestor.at(layer) for ancestor in ancestors]
            tokens = _advance(block, tokens, query, [*before, own])
    return kept


def read_last(blocks: Sequence[Any], tokens: Tensor, ancestors: Sequence[Ancestor]) -> Tensor:
    """Runs segments that end their sequences.

    Args:
        blocks (Sequence[nn.Module]): As in :func:`grow`.
        tokens (Tensor): Embeddings with positions added, shape (N, L, width).
        ancestors (Sequence[Ancestor]): The segments before them, in order.

    Returns:
        Tensor: State of the last token of each, shape (N, width).
    """
    for layer, block in enumerate(blocks):
        query, own = _project(block, tokens)
        if layer + 1 == len(blocks):
            tokens, query = tokens[:, -1:], query[:, :, -1:]
        before = [ancestor.at(layer) for ancestor in ancestors]
        tokens = _advance(block, tokens, query, [*before, own])
    return tokens[:, -1]


def attend(query: Tensor, segments: Sequence[Keys]) -> Tensor:
    """Causal attention over keys that are partly shared.

    Softmax runs over all keys together, but the shared ones are never joined with the others:
    their copies for each of N queries would be most of what a training step has to remember.

    Args:
        query (Tensor): Of the last tokens of the last segment, shape (heads, N, Q, d).
        segments (Sequence[Keys]): In order; those with one row are shared by all queries, the
            last is the queries' own.

    Returns:
        Tensor: Shape (N, Q, heads * d).
    """
    shared = [keys for keys in segments[:-1] if keys.key.shape[1] == 1]
    private = [keys for keys in segments[:-1] if keys.key.shape[1] > 1] + [segments[-1]]
    key, value = (torch.cat(parts, dim=2) for parts in zip(*private))
    logits = query @ key.transpose(2, 3)
    num_query, num_keys = logits.shape[2:]
    if num_query > 1:
        future = torch.ones(num_query, num_keys, dtype=torch.bool, device=query.device)
        logits = logits.masked_fill(future.triu(num_keys - num_query + 1), -torch.inf)
    logits = torch.cat([logits, *(_product(query, keys.key.transpose(2, 3)) for keys in shared)],
                       dim=3)
    weights = (logits * query.shape[3]**-0.5).softmax(dim=3)
    own, *others = weights.split([num_keys, *(keys.key.shape[2] for keys in shared)], dim=3)
    read = own @ value
    for part, keys in zip(others, shared):
        read = read + _product(part, keys.value)
    return read.permute(1, 2, 0, 3).flatten(2)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """(heads, N, Q, a) @ (heads, 1, a, b) without N copies of the right one."""
    return (left.flatten(1, 2) @ right[:, 0]).unflatten(1, left.shape[1:3])


def _project(block: Any, tokens: Tensor) -> tuple[Tensor, Keys]:
    attention: nn.MultiheadAttention = block.attn
    joint = F.linear(block.ln_1(tokens), attention.in_proj_weight, attention.in_proj_bias)
    joint = joint.unflatten(-1, (3, attention.num_heads, -1))
    query, key, value = joint.permute(2, 3, 0, 1, 4)
    # A copy, so that not all of ``joint`` is kept for backward: keys are copied when joined.
    return query.contiguous(), Keys(key, value)


def _advance(block: Any, tokens: Tensor, query: Tensor, segments: Sequence[Keys]) -> Tensor:
    tokens = tokens + block.ls_1(block.attn.out_proj(attend(query, segments)))
    return tokens + block.ls_2(block.mlp(block.ln_2(tokens)))
