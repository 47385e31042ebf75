"""ADE: cross attention between images that share an attribute or an object disentangles them."""
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.registry import MODELS

from ..candidates import Candidates
from ..heads.base_head import CompositionHead
from ..heads.portable import Portable
from ..heads.three_path_head import ThreePathHead
from ..mlp import mlp
from ..structures import PATHS, Features, Scores, TrainStep, as_features
from .ade_attention import CrossAttention, agreement


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
    agreement E of both attentions (:func:`~.ade_attention.agreement`), which should be high for
    what the images share and low for what they do not:

        L_emd = E_a(x, z) + E_o(x, y) - E_a(x, y) - E_o(x, z)

    An image asks itself at test time: score = cos(f_c, t_c) + cos(f_a, t_a) cos(f_o, t_o).

    Args:
        *args: ``space`` and ``text`` of :class:`~mmcluspro.models.heads.CompositionHead`.
        in_channels (int): Width of a token.
        out_channels (int): Width of the features, that of word vectors and pairs.
        dim (int, optional): Width to which a linear layer takes the tokens first. Defaults to
            None, no such layer.
        num_heads (int): Heads of the attention. Defaults to 12.
        hidden (Sequence[int]): Hidden widths of the MLPs. Defaults to (768, ).
        dropout (float): Dropout rate of the MLPs. Defaults to 0.5.
        num_tokens (int): How many tokens a stored feature holds, one after the other, class token
            first; tokens of the backbone are taken where it gives them. Defaults to 1.
        emd_weight (float): Weight of L_emd. Defaults to 1.
        epsilon (float): Weight of the entropy in the transport. Defaults to 0.05.
        **kwargs: As in :class:`~mmcluspro.models.heads.CompositionHead`.
    """

    def __init__(self, *args: Any, in_channels: int, out_channels: int, dim: int | None = None,
                 num_heads: int = 12, hidden: Sequence[int] = (768, ), dropout: float = 0.5,
                 num_tokens: int = 1, emd_weight: float = 1.0, epsilon: float = 0.05,
                 **kwargs: Any) -> None:
        super().__init__(*args, fusion='logits', **kwargs)
        width = dim or in_channels
        self.num_tokens, self.emd_weight, self.epsilon = num_tokens, emd_weight, epsilon
        self.reduce = nn.Linear(in_channels, width) if dim else nn.Identity()
        self.attention = nn.ModuleDict({path: CrossAttention(width, num_heads) for path in PATHS})
        self.embed = nn.ModuleDict({
            path: mlp((width, *hidden, out_channels), norm=True, dropout=dropout)
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
        """cos(f_c, t_c) + cos(f_a, t_a) cos(f_o, t_o).

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
        scores = pair / scale + (attr / scale)[:, first] * (obj / scale)[:, second]
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
