"""The graph of attributes, objects and pairs, and convolutions on it (CGE's, as GIPCOL uses it)."""
from __future__ import annotations

import torch
from torch import Tensor, nn


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
