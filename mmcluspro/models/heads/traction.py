"""Cross-modal traction: text features drawn towards the patches of each image (Troika).

Huang et al., "Troika: Multi-Path Cross-Modal Traction for Compositional Zero-Shot Learning".
"""
import torch
from open_clip.transformer import QuickGELU
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.registry import MODELS

HEAD_WIDTH = 64
Memory = list[tuple[Tensor, Tensor]]


class TractionLayer(nn.Module):
    """q ← q + attention(q, patches), then q ← q + MLP(norm(q)).

    Keys and values depend on the image only, so that they are computed apart, once for all texts.

    Args:
        dim (int): Width D of texts and patches, a multiple of 64, the width of a head.
        dropout (float): Dropout rate after the attention and in the MLP.
    """

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.out = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), QuickGELU(), nn.Dropout(dropout), nn.Linear(4 * dim, dim))
        self.drop = nn.Dropout(dropout)

    def keys_and_values(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        """Patches (B, L, D) → two tensors of shape (B, heads, L, 64)."""
        return _heads(self.key(patches)), _heads(self.value(patches))

    def forward(self, q: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """q (B, T, D), or (1, T, D) for texts that are the same for all images → (B, T, D)."""
        query = _heads(self.query(q)).expand(len(key), -1, -1, -1)
        read = F.scaled_dot_product_attention(query, key, value)
        q = q + self.drop(self.out(read.transpose(1, 2).flatten(2)))
        return q + self.drop(self.mlp(self.norm(q)))


@MODELS.register_module()
class CrossModalTraction(nn.Module):
    """text' = normalise(text + λ ⊙ traction(text, patches)), the same layers for all paths.

    Args:
        dim (int): Width D of texts and patches.
        num_layers (int): Number of layers. Defaults to 2.
        dropout (float): Dropout rate in the layers. Defaults to 0.0.
        scale (float): Initial value of λ, a vector of width D that learns. Defaults to 0.1.
    """

    def __init__(self, dim: int, num_layers: int = 2, dropout: float = 0.0,
                 scale: float = 0.1) -> None:
        super().__init__()
        if dim % HEAD_WIDTH:
            raise ValueError(
                f'The heads of the traction layers are {HEAD_WIDTH} wide, so that '
                f'head.in_channels must be a multiple of {HEAD_WIDTH}, got {dim}.')
        if num_layers < 1:
            raise ValueError(f'head.traction.num_layers must be at least 1, got {num_layers}.')
        if not 0 <= dropout < 1:
            raise ValueError(f'head.traction.dropout must lie in [0, 1), got {dropout}.')
        self.norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList([TractionLayer(dim, dropout) for _ in range(num_layers)])
        self.scale = nn.Parameter(torch.full((dim, ), float(scale)))

    def remember(self, tokens: Tensor) -> Memory:
        """Keys and values of each layer, once for all texts of all paths.

        Args:
            tokens (Tensor): Projected tokens of the images, shape (B, L, D).
        """
        patches = self.norm(tokens.to(self.scale.dtype))
        return [layer.keys_and_values(patches) for layer in self.layers]  # type: ignore[operator]

    def forward(self, texts: Tensor, memory: Memory) -> Tensor:
        """Texts as each image sees them.

        Args:
            texts (Tensor): Unit norm, shape (T, D).
            memory (list): From :meth:`remember`, of B images.

        Returns:
            Tensor: Unit norm, float32, shape (B, T, D).
        """
        q = texts[None].to(self.scale.dtype)
        for layer, (key, value) in zip(self.layers, memory):
            q = layer(q, key, value)
        # The sum is what the cosines are made of: full precision under autocast, too.
        with torch.autocast(q.device.type, enabled=False):
            return F.normalize(texts.float() + self.scale.float() * q.float(), dim=-1)


def _heads(x: Tensor) -> Tensor:
    """(B, L, D) → (B, D / 64, L, 64)."""
    return x.unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2)
