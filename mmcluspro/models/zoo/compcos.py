"""CompCos: cosines of images and pairs, with margins by feasibility for the open world."""
from typing import Any

import torch
from torch import Tensor, nn

from mmcluspro.fields import Unsaved, Width
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads.base import Feasibility
from mmcluspro.models.heads.three_path import ThreePathHead
from mmcluspro.models.pair_feasibility import feasibility_scores
from mmcluspro.models.structures import Features, Logits, TrainStep
from mmcluspro.models.text import WordTableText
from mmcluspro.registry import MODELS


@MODELS.register_module()
class LinearPairText(WordTableText):
    """t_a = w_a, t_o = w_o, t_c = W [w_a, w_o] + b, each scaled to unit norm.

    Args:
        out_dim (int): Width of t_c. Defaults to 300.
        **kwargs: As in :class:`WordTableText`.
    """

    def __init__(self, out_dim: Width = 300, **kwargs: Any) -> None:
        super().__init__(out_dim=out_dim, **kwargs)
        self.composer = nn.Linear(2 * self.width, out_dim)

    def compose(self, parts: tuple[Tensor, Tensor], pairs: Tensor) -> Tensor:
        return self.composer(super().compose(parts, pairs))


@MODELS.register_module()
class CompCosHead(ThreePathHead):
    """CompCos (Mancini et al., "Open World Compositional Zero-Shot Learning", CVPR 2021).

    One path: an MLP (the neck) embeds the image, a linear layer the two word vectors, which learn
    (:class:`LinearPairText`):

        score(x, a, o) = cos(f_c, t_c),  L = CE(cosines over temperature, pair)

    In the closed world, the softmax of the loss runs over the seen pairs. With ``margin`` α it
    runs over all attributes x objects, and the cosines of unseen pairs are lowered by their
    feasibility (Eq. 14 on the vectors as they are now): a feasible pair is pushed away less.

        cosine'(x, c) = cos(f_c, t_c) - min(1, e / E) α ρ(c)   for unseen c, in epoch e

    In epoch 0 unseen pairs stay out.

    Args:
        *args: ``space`` and ``text`` of :class:`~mmcluspro.models.heads.CompositionHead`.
        margin (float, optional): α. Defaults to None: the closed world.
        margin_epochs (int): E, the epochs until the margins are whole. Defaults to 15.
        feasibility (str): As in :class:`~mmcluspro.models.heads.CompositionHead`. Defaults to
            'trained', the vectors that training left.
        **kwargs: As in :class:`~mmcluspro.models.heads.CompositionHead`.
    """

    fixed: tuple[str, ...] = ('fusion', )

    def __init__(self, *args: Any, margin: Unsaved[float | None] = None,
                 margin_epochs: Unsaved[int] = 15, feasibility: Feasibility = 'trained',
                 **kwargs: Any) -> None:
        super().__init__(*args, loss_weights=dict(attr=0, obj=0), fusion='composition',
                         feasibility=feasibility, **kwargs)
        if margin_epochs < 1:
            raise ValueError(f'head.margin_epochs must be at least 1, got {margin_epochs}.')
        self.margin, self.margin_epochs = margin, margin_epochs
        self.epoch = 0
        self._open: Candidates | None = None

    def begin_epoch(self, epoch: int) -> None:
        """Raises the weight of the margins with the epoch."""
        self.epoch = epoch

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Logits over the seen pairs, or over all pairs with margins for the unseen ones."""
        if self.margin is None or not self.epoch:
            return super().step(features, labels)
        if self._open is None:
            self._open = Candidates.from_space(self.space.open_world())
        candidates = self._open = self._open.to(self.device)
        texts = self.texts(candidates, primitives=False)
        logits = self.compare(features, texts, candidates).composition
        share = min(1.0, self.epoch / self.margin_epochs)
        lowered = self.text.logit_scale.exp() * share * self.margin * self.feasible_share()
        logits = logits - lowered.masked_fill(candidates.seen, 0)
        rows = labels['attr'] * len(self.space.objects) + labels['obj']
        return TrainStep(features, texts, Logits(None, None, logits), dict(labels, pair=rows),
                         candidates)

    @torch.no_grad()
    def feasible_share(self) -> Tensor:
        """ρ of all pairs from the vectors as they are now, shape (A · O,)."""
        attributes, objects = self.text.parts()
        return feasibility_scores(attributes, objects, self.train_candidates.pairs).flatten()
