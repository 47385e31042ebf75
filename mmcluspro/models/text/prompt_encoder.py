"""Prompts to features: which tokens each has, then over a prefix tree or as whole sequences."""
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from mmcluspro.utils.device import upload

from .clip_tower import TextTower
from .prefix_tree import Ancestor, grow, read_last


class Leaves(NamedTuple):
    """The ends of n prompts, all with the same number of tokens.

    Attributes:
        tokens (Tensor): Rows of the vectors of the last name, shape (n, tokens of the name).
        parent (Tensor | None): Row of ``Group.nodes`` that stands before, shape (n,).
    """
    tokens: Tensor
    parent: Tensor | None = None


class Group(NamedTuple):
    """Prompts whose first names have the same number of tokens.

    Attributes:
        nodes (Tensor | None): Rows of the attributes' vectors for each attribute that occurs,
            shape (m, tokens of the name); None for prompts of one name.
        leaves (list[Leaves]): One for each length of the last name.
    """
    nodes: Tensor | None
    leaves: list[Leaves]


class PromptPlan(NamedTuple):
    """All prompts of one path.

    Attributes:
        groups (list[Group]): In the order in which they are encoded.
        order (Tensor): Where each asked prompt is among the encoded ones, shape (P,).
    """
    groups: list[Group]
    order: Tensor


def plan_names(lengths: Sequence[int], device: torch.device) -> PromptPlan:
    """Plans ``[context name]`` for every name.

    Args:
        lengths (Sequence[int]): Number of tokens of each name.
        device (torch.device): Where the plan is needed.
    """
    names = torch.arange(len(lengths), device=device)
    leaves, asked = _leaves(names, None, torch.tensor(lengths, device=device))
    return PromptPlan([Group(None, leaves)], torch.cat(asked).argsort())


def plan_pairs(pairs: Tensor, attr_lengths: Sequence[int],
               obj_lengths: Sequence[int]) -> PromptPlan:
    """Plans ``[context attribute object]`` for the asked pairs.

    Args:
        pairs (Tensor): Attribute and object of each pair, shape (P, 2), P > 0.
        attr_lengths (Sequence[int]): Number of tokens of each attribute.
        obj_lengths (Sequence[int]): Number of tokens of each object.
    """
    attributes, objects = pairs.unbind(1)
    attr_tokens = torch.tensor(attr_lengths, device=pairs.device)
    obj_tokens = torch.tensor(obj_lengths, device=pairs.device)
    groups, asked = [], []
    for length in attr_tokens[attributes].unique().tolist():
        rows = (attr_tokens[attributes] == length).nonzero().squeeze(1)
        used, parent = attributes[rows].unique(return_inverse=True)
        leaves, where = _leaves(objects[rows], parent, obj_tokens)
        groups.append(Group(_token_rows(used, attr_tokens, length), leaves))
        asked += [rows[part] for part in where]
    return PromptPlan(groups, torch.cat(asked).argsort())


def _leaves(names: Tensor, parent: Tensor | None,
            num_tokens: Tensor) -> tuple[list[Leaves], list[Tensor]]:
    leaves, where = [], []
    for length in num_tokens[names].unique().tolist():
        rows = (num_tokens[names] == length).nonzero().squeeze(1)
        leaves.append(Leaves(_token_rows(names[rows], num_tokens, length),
                             None if parent is None else parent[rows]))
        where.append(rows)
    return leaves, where


def _token_rows(names: Tensor, num_tokens: Tensor, length: int) -> Tensor:
    first = num_tokens.cumsum(0) - num_tokens
    return first[names, None] + torch.arange(length, device=names.device)


class PromptEncoder(Protocol):
    """Prompts are encoded from their first tokens on, one segment after the other."""

    def begin(self, context: Tensor) -> Any:
        """Encodes the context of all prompts, shape (l, width)."""

    def branch(self, before: Any, nodes: Tensor) -> Any:
        """Encodes the m names that follow, shape (m, k, width)."""

    def finish(self, before: Any, leaves: Tensor, parent: Tensor | None) -> Tensor:
        """Encodes the ends, shape (n, k, width), to features, shape (n, out_dim)."""


class Stem(NamedTuple):
    """The prefix of a segment: the keys of its tokens and their number."""
    ancestors: tuple[Ancestor, ...]
    length: int


class TreeEncoder:
    """Runs every token once for each different prefix; see :mod:`.prefix_tree`."""

    def __init__(self, tower: TextTower) -> None:
        self.tower = tower
        self.blocks = tower.text.transformer.resblocks

    def begin(self, context: Tensor) -> Stem:
        tokens = torch.cat([self.tower.vectors(self.tower.frame.start), context])[None]
        return Stem((Ancestor(grow(self.blocks, self._place(tokens, 0))), ), tokens.shape[1])

    def branch(self, before: Stem, nodes: Tensor) -> Stem:
        keys = grow(self.blocks, self._place(nodes, before.length), before.ancestors)
        return Stem((*before.ancestors, Ancestor(keys)), before.length + nodes.shape[1])

    def finish(self, before: Stem, leaves: Tensor, parent: Tensor | None) -> Tensor:
        *shared, last = before.ancestors
        end = self.tower.vectors(self.tower.frame.end[:1])
        tokens = torch.cat([leaves, end.expand(len(leaves), 1, -1)], dim=1)
        states = read_last(self.blocks, self._place(tokens, before.length),
                           [*shared, Ancestor(last.layers, parent)])
        return self.tower.project(states)

    def _place(self, tokens: Tensor, start: int) -> Tensor:
        return tokens + self.tower.text.positional_embedding[start:start + tokens.shape[1]]


class WholeEncoder:
    """Runs the tower's own forward on whole sequences, for towers of any kind."""

    def __init__(self, tower: TextTower) -> None:
        self.tower = tower

    def begin(self, context: Tensor) -> list[Tensor]:
        return [torch.cat([self.tower.vectors(self.tower.frame.start), context])[None]]

    def branch(self, before: list[Tensor], nodes: Tensor) -> list[Tensor]:
        return [*before, nodes]

    def finish(self, before: list[Tensor], leaves: Tensor, parent: Tensor | None) -> Tensor:
        return self.tower.run(*self._whole(before, leaves, parent))

    def _whole(self, before: list[Tensor], leaves: Tensor,
               parent: Tensor | None) -> tuple[Tensor, Tensor]:
        """Ids and vectors of whole sequences, from the start token to the last filler."""
        frame, size = self.tower.frame, len(leaves)
        parts = [*before[:-1], before[-1] if parent is None else before[-1][parent], leaves]
        num_inner = sum(part.shape[1] for part in parts) - len(frame.start)
        num_end = frame.context_length - len(frame.start) - num_inner
        ids = [*frame.start, *[frame.filler] * num_inner, *frame.end[:num_end]]
        parts.append(self.tower.vectors(frame.end[:num_end])[None])
        tokens = torch.cat([part.expand(size, -1, -1) for part in parts], dim=1)
        return upload(ids, leaves.device).expand(size, -1), tokens


class TokenEncoder(WholeEncoder):
    """As :class:`WholeEncoder`, with the states of all tokens, shape (n, context_length, width)."""

    def finish(self, before: list[Tensor], leaves: Tensor, parent: Tensor | None) -> Tensor:
        return self.tower.run_tokens(*self._whole(before, leaves, parent))


def encode_prompts(encoder: PromptEncoder, plan: PromptPlan, context: Tensor,
                   nodes: Tensor | None, leaves: Tensor, chunk_size: int,
                   with_cp: bool = False) -> Tensor:
    """Encodes the prompts of one path.

    Args:
        encoder (PromptEncoder): How.
        plan (PromptPlan): Which vectors make up each prompt.
        context (Tensor): Context of the path, shape (l, width).
        nodes (Tensor | None): Vectors of the attributes that stand before objects.
        leaves (Tensor): Vectors of the last names, shape (tokens, width).
        chunk_size (int): Number of prompts that run together.
        with_cp (bool): Whether to forget the activations of a chunk until backward needs them.

    Returns:
        Tensor: Features, not normalised, shape (P, out_dim).
    """
    def finish(before: Any, tokens: Tensor, parent: Tensor | None) -> Tensor:
        return encoder.finish(before, F.embedding(tokens, leaves), parent)

    root = encoder.begin(context)
    features = []
    for group in plan.groups:
        before = root
        if group.nodes is not None and nodes is not None:
            before = encoder.branch(root, F.embedding(group.nodes, nodes))
        for tokens, parent in _chunks(group.leaves, chunk_size):
            if with_cp and torch.is_grad_enabled():
                features.append(checkpoint(finish, before, tokens, parent, use_reentrant=False,
                                           preserve_rng_state=False))
            else:
                features.append(finish(before, tokens, parent))
    return torch.cat(features).index_select(0, plan.order)


def _chunks(leaves: list[Leaves], size: int) -> Iterator[tuple[Tensor, Tensor | None]]:
    for tokens, parent in leaves:
        for start in range(0, len(tokens), size):
            stop = start + size
            yield tokens[start:stop], None if parent is None else parent[start:stop]
