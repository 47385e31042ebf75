"""Shared parts of the CLIP family: attention between texts and images, means per primitive."""
from __future__ import annotations

from open_clip.transformer import QuickGELU
from torch import Tensor, nn
from torch.nn import functional as F

HEAD_WIDTH = 64


class AttentionBlock(nn.Module):
    """x ← x + attention(norm(x), norm(y)), then x ← x + MLP(norm(x)).

    Both branches end with zeros, so that a block starts as the identity.

    Args:
        dim (int): Width D. Heads are 64 wide; a D that 64 does not divide has one head.
        cross (bool): Whether y is another sequence with a norm of its own, instead of x.
        attn_drop (float): Dropout rate of the attention weights. Defaults to 0.0.
        mlp_drop (float): Dropout rate inside the MLP. Defaults to 0.0.
    """

    def __init__(self, dim: int, cross: bool, attn_drop: float = 0.0,
                 mlp_drop: float = 0.0) -> None:
        super().__init__()
        heads = dim // HEAD_WIDTH if dim % HEAD_WIDTH == 0 else 1
        self.norm_x = nn.LayerNorm(dim)
        self.norm_y = nn.LayerNorm(dim) if cross else None
        self.attn = nn.MultiheadAttention(dim, heads, dropout=attn_drop, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), QuickGELU(), nn.Dropout(mlp_drop),
                                 nn.Linear(4 * dim, dim))
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
        return x + self.mlp(self.norm(x))

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
