"""Co-CGE: the graph of CGE with cosines, and with feasibility in the open world."""
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.fields import Unsaved
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.pair_feasibility import feasibility_scores
from mmcluspro.models.structures import Features, TrainStep
from mmcluspro.registry import MODELS

from .cge import GraphHead, Nodes

WORLDS = ('closed', 'open')
OUTSIDE = -10.0  # margin of unseen pairs before the first estimate: no part of the softmax


@MODELS.register_module()
class CoCGEHead(GraphHead):
    r"""Co-CGE (Mancini et al., "Learning Graph Embeddings for Open World CZSL", 2022).

    Cosines take the place of CGE's dot products,

    .. math:: s(x, a, o) = \cos(f, t_{ao}) / T

    with the cross-entropy over the seen pairs. In the **open world** every attribute with every
    object is a node and a class. After each epoch the feasibility :math:`\rho` (Eq. 14) is
    estimated from the states of attributes and objects in the graph. It enters twice, for unseen
    pairs:

    - as weight of the edges of a pair, :math:`w = \max(0, \rho)`; seen pairs have 1;
    - as margin in the loss, :math:`\cos(f, t_{ao}) - \alpha \rho`, where :math:`\alpha` rises to
      ``margin`` over ``margin_epochs`` epochs: feasible pairs are pushed away less.

    In the first epoch unseen pairs take no part.

    Args:
        *args: As in :class:`~.cge.GraphHead`.
        world (str): What is learned for, 'closed' or 'open'. Defaults to 'closed'.
        margin (float): :math:`\alpha` of the open world. Defaults to 0.4.
        margin_epochs (int): Epochs until it is reached. Defaults to 15.
        nodes (str, optional): As in :class:`~.cge.GraphHead`. Defaults to None: 'known' in the
            closed, 'all' in the open world.
        **kwargs: As in :class:`~.cge.GraphHead`.
    """

    margins: Tensor

    def __init__(self, *args: Any, world: Literal['closed', 'open'] = 'closed',
                 margin: Unsaved[float] = 0.4, margin_epochs: Unsaved[int] = 15,
                 nodes: Nodes | None = None, **kwargs: Any) -> None:
        if world not in WORLDS:
            raise ValueError(f'head.world must be one of {WORLDS}, got {world!r}.')
        if world == 'open' and nodes not in (None, 'all'):
            raise ValueError(f"head.nodes={nodes!r} does not fit head.world='open', whose nodes "
                             'are all pairs: leave it out.')
        if margin_epochs < 1:
            raise ValueError(f'head.margin_epochs must be at least 1, got {margin_epochs}.')
        super().__init__(*args, nodes=nodes or ('all' if world == 'open' else 'known'), **kwargs)
        self.world, self.margin, self.margin_epochs = world, margin, margin_epochs
        if world == 'open':
            self._open = Candidates.from_space(self.space.open_world())
            seen = self._open.seen
            self.text.connect(self._open.pairs, seen.float())
            # Not saved: the next epoch estimates them anew.
            self.register_buffer('margins', torch.where(seen, 0.0, OUTSIDE), persistent=False)

    def begin_epoch(self, epoch: int) -> None:
        """Estimates the feasibility anew, which a checkpoint does not hold.

        Args:
            epoch (int): Number of epochs that were trained.
        """
        if self.world == 'open' and epoch:
            self._estimate(epoch)

    def end_epoch(self, epoch: int) -> None:
        """Estimates the feasibility of all pairs, for validation and the next epoch.

        Args:
            epoch (int): The epoch that ended, counted from 0.
        """
        self.begin_epoch(epoch + 1)

    @torch.no_grad()
    def _estimate(self, epoch: int) -> None:
        training = self.text.training
        self.text.eval()  # no dropout
        names = self.text.encode_attributes(), self.text.encode_objects()
        self.text.train(training)
        rho = feasibility_scores(*names, self.space.train_pairs).flatten()
        self._open = self._open.to(self.device)
        seen = self._open.seen
        self.text.reweigh(torch.where(seen, 1.0, rho.clamp_min(0)))
        alpha = self.margin * min(1.0, epoch / self.margin_epochs)
        self.margins = torch.where(seen, 0.0, -alpha * rho)

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Texts and logits over the seen pairs, in the open world over all pairs."""
        if self.world == 'closed':
            return super().step(features, labels)
        self._open = self._open.to(self.device)
        texts = self.texts(self._open, False)
        rows = labels['attr'] * len(self.space.objects) + labels['obj']
        return TrainStep(features, texts, self.compare(features, texts, self._open),
                         dict(labels, pair=rows), self._open)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """The cross-entropy, with the margins of the open world."""
        if self.world == 'closed':
            return super().terms(step)
        logits = step.logits.composition + self.text.logit_scale.exp() * self.margins
        return dict(pair_loss=F.cross_entropy(logits, step.labels['pair']))
