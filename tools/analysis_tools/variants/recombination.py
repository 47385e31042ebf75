"""Recombination: prototypes of two primitives as virtual examples of a pair never seen."""
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.models.heads import ClusProHead
from mmcluspro.models.structures import TrainStep
from mmcluspro.registry import MODELS


@MODELS.register_module()
class RecombinationHead(ClusProHead):
    """Trains the composition path on virtual features of unseen pairs.

    A composer maps (f_a, f_o) to the composition path, ``f_a + f_o + W [f_a; f_o]``. It learns
    on real images over the seen pairs. A virtual feature is the composer's output for one
    prototype of an attribute and one of an object that training never showed together; it is
    classified among the seen pairs and the virtual ones of the step.

    Args:
        *args: As in ClusProHead.
        virtual (int): Virtual pairs per step. Defaults to 64.
        virtual_weight (float): Weight of both losses. Defaults to 0.5.
        source (str): What is composed: 'prototypes', or (a control) the 'texts' of the two
            primitives. Defaults to 'prototypes'.
        **kwargs: As in ClusProHead.
    """

    def __init__(self, *args: Any, virtual: int = 64, virtual_weight: float = 0.5,
                 source: str = 'prototypes', **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.virtual, self.virtual_weight = virtual, virtual_weight
        self.source = source
        width = kwargs['in_channels']
        self.composer = nn.Linear(2 * width, width, bias=False)
        nn.init.zeros_(self.composer.weight)
        pairs = self.train_candidates.pairs
        unseen = torch.ones(len(self.space.attributes), len(self.space.objects), dtype=torch.bool)
        unseen[pairs[:, 0], pairs[:, 1]] = False
        self.register_buffer('unseen', unseen.nonzero(), persistent=False)
        self.generator = torch.Generator().manual_seed(0)

    def compose(self, attribute: Tensor, object_: Tensor) -> Tensor:
        """Unit features of the composition path from those of primitives, shape (N, D)."""
        return F.normalize(attribute + object_ + self.composer(
            torch.cat([attribute, object_], dim=1)), dim=1)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """Adds ``real_loss`` and ``virtual_loss``."""
        losses = super().terms(step)
        scale = self.text.logit_scale.exp()
        unit = [F.normalize(f.detach().float(), dim=1) for f in step.features.primitives.values()]
        seen = step.texts.composition.float()
        losses['real_loss'] = self.virtual_weight * F.cross_entropy(
            scale * self.compose(*unit) @ seen.detach().T, step.labels['pair'])
        chosen = torch.randperm(len(self.unseen), generator=self.generator)[:self.virtual]
        pairs = self.unseen[chosen]
        texts = self.text.encode_pairs(pairs).float()
        parts = [self._draw('attr', pairs[:, 0]), self._draw('obj', pairs[:, 1])]
        if self.source == 'texts':
            parts = [table.detach().float()[column] for table, column in zip(
                (step.texts.attribute, step.texts.object), pairs.T)]
        logits = scale * self.compose(*parts) @ torch.cat([seen, texts]).T
        target = len(seen) + torch.arange(len(pairs), device=logits.device)
        losses['virtual_loss'] = self.virtual_weight * F.cross_entropy(logits, target)
        return losses

    def _draw(self, branch: str, classes: Tensor) -> Tensor:
        """One prototype of each primitive, shape (N, D)."""
        bank = self.bank(branch)
        place = torch.rand(len(classes), generator=self.generator).to(classes.device)
        return bank.prototypes[bank.offsets[classes] + (place * bank.sizes[classes]).long()]
