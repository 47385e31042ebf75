"""TOMCAT: prototypes of both modalities learn from the unlabelled images of the test.

Yan and Feng, "TOMCAT: Test-time Comprehensive Knowledge Accumulation for Compositional Zero-Shot
Learning".
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.registry import MODELS

from ..candidates import Candidates
from ..heads import CompositionHead, Portable
from ..structures import Features, Scores, as_features
from .knowledge_stream import KnowledgeStream, StreamSettings
from .pcvl import PCVLHead


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

    def __init__(self, *args: Any, test_time: bool = True, capacity: int = 3, alpha: float = 0.5,
                 beta: float = 7.5, theta: float = 1.0, test_lr: float = 5e-6,
                 test_decay: float = 1e-3, test_eps: float = 1e-3, align_weight: float = 3.5,
                 **kwargs: Any) -> None:
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
