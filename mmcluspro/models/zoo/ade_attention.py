"""The parts of ADE: cross attention of two images, and how well their attention agrees."""
import torch
from torch import Tensor, nn
from torch.nn import functional as F

MANY = 100  # patches from which attention is averaged over 2 x 2 of them before it is compared


class CrossAttention(nn.Module):
    """One transformer block: the tokens of an image ask those of another one.

        y = q + Attention(LN q, LN k);  y = y + MLP(LN y);  out = LN y

    Args:
        dim (int): Width C of the tokens.
        num_heads (int): Number of heads.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        if dim % num_heads:
            raise ValueError(f'head.num_heads={num_heads} must divide the width of the tokens, '
                             f'{dim}.')
        self.num_heads = num_heads
        self.norm1, self.norm2, self.norm_last = (nn.LayerNorm(dim) for _ in range(3))
        self.q, self.kv = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens q and k (B, L, C) to the tokens (B, L, C) and the attention (B, heads, L, L)."""
        query, (key, value) = self.q(self.norm1(q)), self.kv(self.norm1(k)).chunk(2, dim=2)
        query, key, value = (part.unflatten(2, (self.num_heads, -1)).transpose(1, 2)
                             for part in (query, key, value))
        attention = (query @ key.transpose(2, 3) * query.shape[3] ** -0.5).softmax(dim=3)
        q = q + self.proj((attention @ value).transpose(1, 2).flatten(2))
        return self.norm_last(q + self.mlp(self.norm2(q))), attention


def agreement(forth: Tensor, back: Tensor, epsilon: float) -> Tensor:
    """How well the attention of image x to y and of y to x matches, by transport.

    Patches have a weight, the attention of the other image's class token, and a similarity, the
    mean attention in both directions; the score is the similarity that is transported at most:

        S = (A_xy + A_yxᵀ) / 2,   score = Σ_ij F_ij S_ij,   F the plan of cost 1 - S

    No gradient goes through the plan.

    Args:
        forth (Tensor): A_xy, summed over heads, class token first, shape (B, 1 + n, 1 + n).
        back (Tensor): A_yx, of the same shape.
        epsilon (float): Weight of the entropy of the plan.

    Returns:
        Tensor: Scalar, mean over the images; 0 without patches.
    """
    if forth.shape[1] < 2:
        return forth.new_zeros(())
    if forth.shape[1] > MANY:
        forth, back = _pooled(forth), _pooled(back)
    similarity = (forth[:, 1:, 1:] + back[:, 1:, 1:].transpose(1, 2)) / 2
    plan = transport(1 - similarity.detach(), back[:, 0, 1:].detach(), forth[:, 0, 1:].detach(),
                     epsilon)
    return (plan * similarity).sum(dim=(1, 2)).mean()


@torch.no_grad()
def transport(cost: Tensor, rows: Tensor, columns: Tensor, epsilon: float,
              steps: int = 50) -> Tensor:
    """Entropic plan of mass n with marginals proportional to rows and columns (Sinkhorn).

    Args:
        cost (Tensor): Shape (B, n, n).
        rows (Tensor): Weights, not negative, shape (B, n).
        columns (Tensor): Weights, not negative, shape (B, n).
        epsilon (float): Weight of the entropy.
        steps (int): Number of steps; columns hold exactly after the last. Defaults to 50.
    """
    log_rows, log_columns = ((part + 1e-5).log() for part in (rows, columns))
    log_rows, log_columns = (part - part.logsumexp(dim=1, keepdim=True)
                             for part in (log_rows, log_columns))
    kernel, u, v = -cost / epsilon, torch.zeros_like(rows), torch.zeros_like(columns)
    for _ in range(steps):
        u = log_rows - (kernel + v[:, None]).logsumexp(dim=2)
        v = log_columns - (kernel + u[:, :, None]).logsumexp(dim=1)
    return (kernel + u[:, :, None] + v[:, None]).exp() * rows.shape[1]


def _pooled(attention: Tensor) -> Tensor:
    """Averages 2 x 2 patches of both images, shape (B, 1 + n / 4, 1 + n / 4)."""
    for _ in range(2):
        first, patches = attention[:, :, :1], attention[:, :, 1:]
        side = int(patches.shape[2] ** 0.5)
        small = F.avg_pool2d(patches.unflatten(2, (side, side)), 2).flatten(2)
        attention = torch.cat([first, small], dim=2).transpose(1, 2)
    return attention
