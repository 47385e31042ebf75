"""ADE: cross attention between images that share an attribute or an object disentangles them."""
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width, Widths, integer, number
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads.base import CompositionHead, Portable
from mmcluspro.models.heads.three_path import ThreePathHead
from mmcluspro.models.necks import mlp
from mmcluspro.models.structures import PATHS, Features, Scores, TrainStep, as_features
from mmcluspro.registry import MODELS

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
        epsilon (float): As in :func:`transport`.

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
              steps: int = 100) -> Tensor:
    """Nearly exact plan of mass n with marginals proportional to rows and columns, in batches.

    Sinkhorn's steps on costs in units of their standard deviation, with an entropy whose weight
    falls from 1 to epsilon in the first half of the steps. Costs of attention differ by
    thousandths, so a fixed weight would blur the plan until it says nothing.

    Args:
        cost (Tensor): Shape (B, n, n).
        rows (Tensor): Weights, not negative, shape (B, n).
        columns (Tensor): Weights, not negative, shape (B, n).
        epsilon (float): Last weight of the entropy, in standard deviations of the cost.
        steps (int): Number of steps; columns hold exactly after the last. Defaults to 100.
    """
    log_rows, log_columns = (_shares(part).log() for part in (rows, columns))
    deviation = cost.flatten(1).std(1, correction=0).clamp_min(1e-12)[:, None, None]
    cost = (cost - cost.amin(dim=(1, 2), keepdim=True)) / deviation
    u, v = torch.zeros_like(rows), torch.zeros_like(columns)
    for step in range(steps):
        weight = max(epsilon, epsilon ** min(1.0, 2 * (step + 1) / steps))
        u = weight * (log_rows - ((v[:, None] - cost) / weight).logsumexp(dim=2))
        v = weight * (log_columns - ((u[:, :, None] - cost) / weight).logsumexp(dim=1))
    return ((u[:, :, None] + v[:, None] - cost) / weight).exp() * rows.shape[1]


def _shares(weights: Tensor) -> Tensor:
    """Weights (B, n) with a little added, so that none is 0, as shares of 1."""
    weights = weights / weights.sum(dim=1, keepdim=True) + 1e-5
    return weights / weights.sum(dim=1, keepdim=True)


def _pooled(attention: Tensor) -> Tensor:
    """Averages 2 x 2 patches of both images, shape (B, 1 + n / 4, 1 + n / 4)."""
    for _ in range(2):
        first, patches = attention[:, :, :1], attention[:, :, 1:]
        side = int(patches.shape[2] ** 0.5)
        small = F.avg_pool2d(patches.unflatten(2, (side, side)), 2).flatten(2)
        attention = torch.cat([first, small], dim=2).transpose(1, 2)
    return attention


def partners(labels: Tensor, others: Tensor) -> Tensor:
    """Another image of the batch with the same label, if possible with another second label.

    Args:
        labels (Tensor): What must agree, shape (B,).
        others (Tensor): What should differ, shape (B,).

    Returns:
        Tensor: Index of the partner, the image itself where the batch has none, shape (B,).
    """
    same = labels[:, None] == labels
    differs = others[:, None] != others
    # The image itself counts least, an image of the same pair little.
    shares = same * (1e-4 + differs.double()).masked_fill(
        torch.eye(len(labels), dtype=torch.bool, device=labels.device), 1e-9)
    return torch.multinomial(shares, 1)[:, 0]


@MODELS.register_module()
class ADEHead(ThreePathHead):
    """ADE (Hao et al., "Learning Attention as Disentangler", CVPR 2023).

    In training the tokens of an image x ask those of an image y with the same attribute, and of
    an image z with the same object; the class token that comes out goes through an MLP:

        f_a = MLP_a(CA_a(x, y)),  f_o = MLP_o(CA_o(x, z)),  f_c = MLP_c(CA_c(x, x))

    and so do f_a' of CA_a(y, x) and f_o' of CA_o(z, x). The losses are cross-entropies of cosines
    over temperature, of f_c to pairs, f_a and f_a' to attributes, f_o and f_o' to objects, and the
    agreement E of both attentions (:func:`agreement`), which should be high for
    what the images share and low for what they do not:

        L_emd = E_a(x, z) + E_o(x, y) - E_a(x, y) - E_o(x, z)

    An image asks itself at test time: score = cos(f_c, t_c) + w cos(f_a, t_a) cos(f_o, t_o).

    Args:
        *args: ``space`` and ``text`` of :class:`~mmcluspro.models.heads.CompositionHead`.
        in_channels (int): Width of a token.
        out_channels (int): Width of the features, that of word vectors and pairs.
        dim (int, optional): Width to which a linear layer takes the tokens first. Defaults to
            None, no such layer.
        num_heads (int): Heads of the attention. Defaults to 12.
        hidden (Sequence[int]): Hidden widths of the MLPs. Defaults to (768, ).
        object_hidden (Sequence[int], optional): Those of the object MLP. Defaults to None, hidden.
        dropout (float): Dropout rate of the MLPs. Defaults to 0.5.
        num_tokens (int): How many tokens a stored feature holds, one after the other, class token
            first; tokens of the backbone are taken where it gives them. Defaults to 1.
        emd_weight (float): Weight of L_emd. Defaults to 1.
        epsilon (float): As in :func:`transport`. Defaults to 0.02.
        product_weight (float): Of cos(f_a, t_a) cos(f_o, t_o) in the score. Defaults to 1.
        **kwargs: As in :class:`~mmcluspro.models.heads.CompositionHead`.
    """

    fixed: tuple[str, ...] = ('fusion', )

    def __init__(self, *args: Any, in_channels: Width, out_channels: Width,
                 dim: Width | None = None, num_heads: Annotated[int, integer(1, 256)] = 12,
                 hidden: Widths = (768, ), dropout: Unsaved[float] = 0.5,
                 num_tokens: Annotated[int, integer(1, 4096)] = 1, emd_weight: Unsaved[float] = 1.0,
                 epsilon: Unsaved[float] = 0.02, object_hidden: Widths | None = None,
                 product_weight: Annotated[float, number(0, 1e6)] = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, fusion='logits', **kwargs)
        width = dim or in_channels
        if not 0 < epsilon <= 1:
            raise ValueError(f'head.epsilon must be in (0, 1], got {epsilon}.')
        self.num_tokens, self.emd_weight, self.epsilon = num_tokens, emd_weight, epsilon
        self.product_weight = product_weight
        self.reduce = nn.Linear(in_channels, width) if dim else nn.Identity()
        self.attention = nn.ModuleDict({path: CrossAttention(width, num_heads) for path in PATHS})
        self.embed = nn.ModuleDict({
            path: mlp((width, *(hidden if path != 'object' or object_hidden is None
                                else object_hidden), out_channels), norm=True, dropout=dropout)
            for path in PATHS})

    def tokens(self, features: Features) -> Tensor:
        """Tokens of the backbone, or those of the stored feature, shape (B, L, C)."""
        tokens = features.tokens
        if tokens is None:
            tokens = features.composition.unflatten(1, (self.num_tokens, -1))
        return self.reduce(tokens)

    def ask(self, path: str, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Feature (B, D) of q as it sees k, and the attention summed over heads (B, L, L)."""
        tokens, attention = self.attention[path](q, k)
        return self.embed[path](tokens[:, 0]), attention.sum(dim=1)

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """cos(f_c, t_c) + w cos(f_a, t_a) cos(f_o, t_o).

        Args:
            feats (Features): Of B images.
            candidates (Candidates): What can be answered.
        """
        candidates, features = candidates.to(self.device), as_features(feats)
        tokens = self.tokens(features)
        f_a, f_o, f_c = (self.ask(path, tokens, tokens)[0] for path in PATHS)
        attr, obj, pair = self.logits(Features(f_c, f_a, f_o), candidates)
        assert attr is not None and obj is not None
        scale = self.text.logit_scale.exp()
        first, second = candidates.pairs.T
        product = (attr / scale)[:, first] * (obj / scale)[:, second]
        scores = pair / scale + self.product_weight * product
        return Scores(scores, attr.softmax(dim=1), obj.softmax(dim=1))

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Features of the images with their partners; ``extra`` holds f_a', f_o' and L_emd."""
        x = self.tokens(features)
        attr, obj = labels['attr'], labels['obj']
        chosen = dict(attribute=partners(attr, obj), object=partners(obj, attr))
        found, extra, score = {}, {}, {}
        for path in chosen:
            for shared, rows in chosen.items():
                f, forth = self.ask(path, x, x[rows])
                partner, back = self.ask(path, x[rows], x)
                score[path, shared] = agreement(forth, back, self.epsilon)
                if path == shared:
                    found[path], extra[path] = f, partner
        extra['emd'] = torch.stack([value if path != shared else -value
                                    for (path, shared), value in score.items()]).sum()
        f_c = self.ask('composition', x, x)[0]
        return super().step(
            Features(f_c, found['attribute'], found['object'], extra=extra), labels)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """Cross-entropies of the images and their partners, and L_emd."""
        losses = super().terms(step)
        extra = step.features.extra
        bar = replace(step.features, attribute=extra['attribute'], object=extra['object'])
        logits = self.compare(bar, step.texts, step.candidates)
        for name, logit in (('attr', logits.attribute), ('obj', logits.object)):
            assert logit is not None
            losses[f'{name}_bar_loss'] = F.cross_entropy(logit, step.labels[name])
        losses['emd_loss'] = self.emd_weight * extra['emd']
        return losses

    def portable(self) -> Portable:
        """Not possible: the attention is part of the head, not of the image side."""
        return CompositionHead.portable(self)
