"""TOMCAT: prototypes of both modalities learn from the unlabelled images of the test.

Yan and Feng, "TOMCAT: Test-time Comprehensive Knowledge Accumulation for Compositional Zero-Shot
Learning".
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.fields import integer, number
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads import CompositionHead, Portable
from mmcluspro.models.structures import Features, Scores, as_features
from mmcluspro.registry import MODELS

from .pcvl import PCVLHead

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


@MODELS.register_module()
class TOMCATHead(PCVLHead):
    """One-path soft prompts in training; at test time, a stream of images moves the prototypes.

    Training is that of :class:`PCVLHead`: CE of p(c) = softmax_c(f · t_c / τ). At test time
    images come one by one. With residuals R_t and R_v (zero at the start), unit vectors f and
    t_c, and w(p) = σ(−θ f · p),

        t'_c = unit(t_c + w(t_c) R_t,c),        ĉ = argmax_c f · t'_c,
        the queue of ĉ keeps the K images of lowest entropy H(softmax(f · t' / τ)),
        v_c  = mean of the queue of c,           v'_c = unit(v_c + w(v_c) R_v,c),
        l_c  = f · t'_c / τ + α exp(−β (1 − f · v'_c))   (the second term where c has a queue),
        L    = H(softmax(l)) + λ (InfoNCE(v' → t') + InfoNCE(t' → v')) / 2  over pairs with a queue,

    and one step of AdamW on R_t and R_v follows each image, after it was scored with l. No label
    is used, and the parameters of the model stay.

    :meth:`adapt` announces images. The first :meth:`score` of them over some candidates then
    streams them; every set of candidates, such as closed and open world, has residuals and a
    queue of its own, until :meth:`forget_adaptation`. Images that were not announced are scored
    with what was learned, and change nothing. Results depend on the order of the images, and
    use unlabelled test data: report them apart.

    Args:
        *args: As in :class:`PCVLHead`.
        test_time (bool): Whether the stream is used; without it the head is its base model.
            Defaults to True.
        capacity (int): K. Defaults to 3.
        alpha (float): α. Defaults to 0.5.
        beta (float): β. Defaults to 7.5.
        theta (float): θ. Defaults to 1.0.
        test_lr (float): Rate of the steps at test time. Defaults to 5e-6.
        test_decay (float): Weight decay of these steps. Defaults to 1e-3.
        test_eps (float): ε of AdamW. Defaults to 1e-3.
        align_weight (float): λ. Defaults to 3.5.
        **kwargs: As in :class:`PCVLHead`.
    """

    def __init__(self, *args: Any, test_time: bool = True,
                 capacity: Annotated[int, integer(1, 100)] = 3,
                 alpha: Annotated[float, number(0, 1e6)] = 0.5,
                 beta: Annotated[float, number(0, 1e6)] = 7.5,
                 theta: Annotated[float, number(0, 1e6)] = 1.0,
                 test_lr: Annotated[float, number(0, 1e6)] = 5e-6,
                 test_decay: Annotated[float, number(0, 1e6)] = 1e-3,
                 test_eps: Annotated[float, number(1e-12, 1e6)] = 1e-3,
                 align_weight: Annotated[float, number(0, 1e6)] = 3.5, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if capacity < 1:
            raise ValueError(f'head.capacity must be at least 1, got {capacity}.')
        for name, value in dict(alpha=alpha, beta=beta, theta=theta, test_lr=test_lr,
                                test_decay=test_decay, align_weight=align_weight).items():
            if value < 0:
                raise ValueError(f'head.{name} must not be negative, got {value}.')
        if test_eps <= 0:
            raise ValueError(f'head.test_eps must be positive, got {test_eps}.')
        self.test_time = test_time
        self.stream_settings = StreamSettings(capacity, alpha, beta, theta, test_lr, test_decay,
                                              test_eps, align_weight)
        self.forget_adaptation()

    def adapt(self, feats: Features | Sequence[Tensor]) -> None:
        """Announces images: the next :meth:`score` of them learns from them."""
        self._announced: Features | None = as_features(feats)
        self._answers: WeakKeyDictionary[Candidates, Tensor] = WeakKeyDictionary()

    def forget_adaptation(self) -> None:
        """Empties residuals and queues of all candidates."""
        self._announced = None
        self._answers = WeakKeyDictionary()
        self._streams: WeakKeyDictionary[Candidates, KnowledgeStream] = WeakKeyDictionary()

    def train(self, mode: bool = True) -> TOMCATHead:
        """Training moves the texts, so what streams learned about the old ones is forgotten."""
        if mode:
            self.forget_adaptation()
        return super().train(mode)

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """p(c), after the stream if the images were announced."""
        if self.training or not self.test_time:
            return super().score(feats, candidates)
        features, stream = as_features(feats), self._streams.get(candidates)
        if stream is None:
            on_device = candidates.to(self.device)
            stream = KnowledgeStream(self.texts(on_device, False).composition,
                                     self.text.logit_scale.exp(), self.stream_settings)
        unit = F.normalize(features.composition.float(), dim=1)
        with torch.autocast(unit.device.type, enabled=False):
            if features is not self._announced:
                return Scores(stream.look(unit).softmax(dim=1))
            self._streams[candidates] = stream
            if candidates not in self._answers:
                self._answers[candidates] = stream.take(unit)
        return Scores(self._answers[candidates].softmax(dim=1))

    def portable(self) -> Portable:
        """Only without the stream: what is learned at test time has no place in a file."""
        return CompositionHead.portable(self) if self.test_time else super().portable()
