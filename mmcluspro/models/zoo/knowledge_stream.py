"""What TOMCAT learns from a stream of unlabelled images, over one set of pairs."""
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

MOST_PAIRS = 8192  # with a queue: the alignment compares all of them with each other


class StreamSettings(NamedTuple):
    """Settings of :class:`KnowledgeStream`, with the names of the paper."""

    capacity: int  # images per pair in the queue
    alpha: float  # share of the visual prototypes in the logits
    beta: float  # sharpness of their similarity
    theta: float  # of the adaptive update weight
    lr: float  # of both residuals
    weight_decay: float
    eps: float  # of AdamW
    align_weight: float


def update_weight(prototypes: Tensor, feature: Tensor, theta: float) -> Tensor:
    """σ(−θ ⟨f, p_c⟩) (P,): a prototype that is far from the image moves more."""
    return torch.sigmoid(-theta * (prototypes @ feature))


def moved(prototypes: Tensor, residual: Tensor, feature: Tensor, theta: float) -> Tensor:
    """Unit vectors of p_c + w_c r_c, shape (P, D).

    Args:
        prototypes (Tensor): Text features or means of images, shape (P, D).
        residual (Tensor): What was learned so far, shape (P, D).
        feature (Tensor): Unit feature of the image that is scored, shape (D,).
        theta (float): Of :func:`update_weight`, through which no gradient passes.
    """
    weight = update_weight(prototypes, feature, theta)
    return F.normalize(prototypes + weight[:, None] * residual, dim=-1)


def entropy(logits: Tensor) -> Tensor:
    """Entropy of the softmax over the last dimension."""
    return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)


def alignment(visual: Tensor, textual: Tensor, scale: Tensor) -> Tensor:
    """Symmetric contrast of the unit vectors of the same pairs, (C, D) each."""
    logits, target = scale * visual @ textual.T, torch.arange(len(visual), device=visual.device)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


class KnowledgeStream:
    """Residuals and queue of P pairs; changes with every image that it takes.

    The first ``MOST_PAIRS`` pairs that images look like get a queue, so that memory stays bounded
    over any number of images.

    Args:
        texts (Tensor): Unit text features of the pairs, shape (P, D).
        scale (Tensor): Inverse temperature, a scalar.
        settings (StreamSettings): As in :class:`~mmcluspro.models.zoo.TOMCATHead`.
    """

    def __init__(self, texts: Tensor, scale: Tensor, settings: StreamSettings) -> None:
        with torch.inference_mode(False), torch.no_grad():
            self.texts, self.scale = texts.float().clone(), scale.float().clone()
            self.residuals = [torch.zeros_like(self.texts, requires_grad=True) for _ in range(2)]
            self.means = self.texts.new_empty(0, self.texts.shape[1])
        self.settings = settings
        self.optimizer = torch.optim.AdamW(
            self.residuals, lr=settings.lr, eps=settings.eps, weight_decay=settings.weight_decay)
        self.queue: dict[int, list[tuple[float, Tensor]]] = {}  # of a pair, surest images first
        self.rows: dict[int, int] = {}  # of a pair in ``means``

    def take(self, features: Tensor) -> Tensor:
        """Logits (B, P) of unit features (B, D), one image after the other, learning from each."""
        with torch.inference_mode(False), torch.enable_grad():
            return torch.stack([self._turn(feature) for feature in features.float().clone()])

    @torch.no_grad()
    def look(self, features: Tensor) -> Tensor:
        """Logits (B, P) of unit features (B, D) as things stand; nothing changes."""
        return torch.stack([self._logits(feature)[0] for feature in features.float()])

    def _turn(self, feature: Tensor) -> Tensor:
        """Scores an image, then learns from it: the step moves the scores of later images only."""
        textual = moved(self.texts, self.residuals[0], feature, self.settings.theta)
        with torch.no_grad():
            logits = self.scale * textual @ feature
            if not logits.isfinite().all():  # one such image would spoil all later answers
                return logits
            self._enqueue(int(logits.argmax()), float(entropy(logits)), feature)
        logits, visual, pairs = self._logits(feature, textual)
        loss = entropy(logits) + self.settings.align_weight * alignment(
            visual, textual[pairs], self.scale)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return logits.detach()

    def _logits(self, feature: Tensor,
                textual: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (P,), visual prototypes (C, D), and the pairs that have one."""
        settings = self.settings
        pairs = torch.tensor(list(self.rows), dtype=torch.long, device=feature.device)
        if textual is None:
            textual = moved(self.texts, self.residuals[0], feature, settings.theta)
        visual = moved(self.means, self.residuals[1][pairs], feature, settings.theta)
        seen = settings.alpha * torch.exp(settings.beta * (visual @ feature - 1))
        return (self.scale * textual @ feature).index_add(0, pairs, seen), visual, pairs

    def _enqueue(self, pair: int, doubt: float, feature: Tensor) -> None:
        """Keeps the image if it is among the surest of the pair that it looks like."""
        if pair not in self.queue and len(self.queue) == MOST_PAIRS:
            return
        images = self.queue.setdefault(pair, [])
        if len(images) == self.settings.capacity:
            if doubt >= images[-1][0]:
                return
            images.pop()
        images.append((doubt, feature.clone()))  # a view would keep its whole batch in memory
        images.sort(key=lambda image: image[0])
        mean = torch.stack([image for _, image in images]).mean(0)
        row = self.rows.setdefault(pair, len(self.rows))
        if row == len(self.means):
            self.means = torch.cat([self.means, mean[None]])
        else:
            self.means[row] = mean
