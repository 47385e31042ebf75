"""A further loss of any head: the true pair must win by a margin."""
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.models.structures import TrainStep
from mmcluspro.registry import MODELS


@MODELS.register_module()
class PairMarginLoss(nn.Module):
    """Mean of ``max(0, margin + best other logit - true logit)``, and how far texts are apart.

    Args:
        margin (float): In units of the logits. Defaults to 1.0.
        spread (float): Weight of the mean squared cosine between the texts of different pairs.
            Defaults to 0.1.
        loss_weight (float): Weight in the objective. Defaults to 1.0.
    """

    def __init__(self, margin: float = 1.0, spread: float = 0.1, loss_weight: float = 1.0) -> None:
        super().__init__()
        self.margin, self.spread, self.loss_weight = margin, spread, loss_weight

    def forward(self, step: TrainStep) -> Tensor:
        """Loss of a training step, a scalar."""
        logits, target = step.logits.composition, step.labels['pair'][:, None]
        own = logits.gather(1, target)[:, 0]
        other = logits.scatter(1, target, float('-inf')).amax(dim=1)
        texts = step.texts.composition
        cosine = (texts @ texts.T).fill_diagonal_(0)
        return self.loss_weight * (
            F.relu(self.margin + other - own).mean() + self.spread * cosine.square().mean())
