"""Which tokens each prompt is made of, sorted so that sequences of one length run together."""
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


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
