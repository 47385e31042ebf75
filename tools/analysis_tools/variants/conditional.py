"""Conditional decorrelation: what a feature says about the partner, given its own primitive."""
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.models.prototypes.bank import FeatureQueue
from mmcluspro.models.structures import TrainStep
from mmcluspro.registry import MODELS

BRANCHES = ('attr', 'obj')


def aligned(features: Tensor, partners: Tensor, memory: Tensor, memory_partners: Tensor,
            exists: Tensor) -> Tensor:
    """Correlation of RBF similarity and equal partner, over each image's own memory.

    Both are centred per image, so that a scalar in [-1, 1] remains: HSIC given the primitive,
    centred on one side and normalised.

    Args:
        features (Tensor): Unit norm, shape (B, D).
        partners (Tensor): Partner of each image, shape (B,).
        memory (Tensor): Earlier features of the same primitive, shape (B, Q, D).
        memory_partners (Tensor): Their partners, shape (B, Q).
        exists (Tensor): Which of them exist, shape (B, Q).
    """
    distance = (features[:, None] - memory).square().sum(dim=2)
    count = exists.sum(dim=1, keepdim=True).clamp_min(1)

    def centred(values: Tensor) -> Tensor:
        mean = (values * exists).sum(dim=1, keepdim=True) / count
        return (values - mean) * exists

    width = distance.detach()[exists].median().clamp_min(1e-6) if bool(exists.any()) else 1.0
    kernel = centred(torch.exp(distance / (-2 * width)))
    same = centred((partners[:, None] == memory_partners).to(kernel.dtype))
    scale = (kernel.square().sum() * same.square().sum()).clamp_min(1e-10).sqrt()
    return (kernel * same).sum() / scale


@MODELS.register_module()
class ConditionalAlignment(nn.Module):
    """HSIC(f_o, attribute | object) + HSIC(f_a, object | attribute), see :func:`aligned`.

    Args:
        num_attributes (int): Attributes.
        num_objects (int): Objects.
        dim (int): Width of the features.
        size (int): Earlier features per primitive. Defaults to 32.
        loss_weight (float): beta. Defaults to 0.5.
    """

    def __init__(self, num_attributes: int, num_objects: int, dim: int, size: int = 32,
                 loss_weight: float = 0.5) -> None:
        super().__init__()
        # The last column holds the partner.
        self.queues = nn.ModuleDict({
            branch: FeatureQueue(count, size, dim + 1)
            for branch, count in zip(BRANCHES, (num_attributes, num_objects))})
        self.size, self.loss_weight = size, loss_weight

    def forward(self, step: TrainStep) -> Tensor:
        """Loss of a batch, which joins the memory afterwards."""
        total = 0.0
        for branch, other in zip(BRANCHES, reversed(BRANCHES)):
            queue, own = self.queues[branch], step.labels[branch]
            feature = F.normalize(step.features.primitives[branch].float(), dim=1)
            stored, pushed = queue.context()
            stored = stored[own].clone()
            exists = torch.arange(self.size, device=own.device) < pushed[own, None]
            total = total + aligned(feature, step.labels[other], stored[..., :-1],
                                    stored[..., -1].long(), exists)
            queue.push(torch.cat([feature.detach(), step.labels[other][:, None].float()], dim=1),
                       own)
        return self.loss_weight * total


class _Reverse(torch.autograd.Function):
    """Identity whose gradient changes its sign."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return -gradient


@MODELS.register_module()
class AdversarialProbe(nn.Module):
    """Linear probes that read the partner from a feature less the mean of its own primitive.

    The probes learn to; the features learn, through a reversed gradient, that they cannot.

    Args:
        num_attributes (int): Attributes.
        num_objects (int): Objects.
        dim (int): Width of the features.
        momentum (float): Of the means, per batch. Defaults to 0.9.
        scale (float): Of the logits. Defaults to 10.
        loss_weight (float): Weight for probes and features alike. Defaults to 0.1.
    """

    def __init__(self, num_attributes: int, num_objects: int, dim: int, momentum: float = 0.9,
                 scale: float = 10.0, loss_weight: float = 0.1) -> None:
        super().__init__()
        sizes = dict(attr=num_attributes, obj=num_objects)
        self.probes = nn.ModuleDict({
            branch: nn.Linear(dim, sizes[other])
            for branch, other in zip(BRANCHES, reversed(BRANCHES))})
        for branch in BRANCHES:
            self.register_buffer(f'{branch}_mean', torch.zeros(sizes[branch], dim))
        self.momentum, self.scale, self.loss_weight = momentum, scale, loss_weight

    def forward(self, step: TrainStep) -> Tensor:
        """Cross-entropy of both probes."""
        total = 0.0
        for branch, other in zip(BRANCHES, reversed(BRANCHES)):
            own, mean = step.labels[branch], getattr(self, f'{branch}_mean')
            feature = F.normalize(step.features.primitives[branch].float(), dim=1)
            with torch.no_grad():
                member = F.one_hot(own, len(mean)).to(feature.dtype)
                count = member.sum(dim=0)[:, None]
                new = self.momentum * mean + (1 - self.momentum) * (
                    member.T @ feature / count.clamp_min(1))
                mean.copy_(torch.where(count > 0, new, mean))
            logits = self.scale * self.probes[branch](_Reverse.apply(feature - mean[own]))
            total = total + F.cross_entropy(logits, step.labels[other])
        return self.loss_weight * total
