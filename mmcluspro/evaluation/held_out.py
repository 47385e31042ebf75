"""Cross-validation over pairs held out in turn: what a model answers for pairs it has not seen.

A fold leaves out a part of the pairs, and a part of the photographs of the others. A fit on the
rest answers both, and the candidates are all pairs. Every pair is unseen once, unless an attribute
or object occurs in no other.
"""
from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads.joined import TINY, JoinedHead
from mmcluspro.models.heads.regression import RegressionHead, Settings, mix, pair_kernel
from mmcluspro.models.softmax import Fits, Problems, fit

from .curve import MAX_BIAS, czsl_curve

PENALTIES = tuple(10.0 ** power for power in (-4, -3.5, -3, -2.5, -2, -1.5, -1))
PAIR_PENALTIES = tuple(10.0 ** power for power in (-3, -2, -1))
WORDS = (0.0, 0.3, 0.6)
SHARES = (0.0, 0.2, 0.4, 0.6)
STEPS, TOLERANCE = 40, 1e-2  # of fits that are only compared
TEXTS = (0.0, 0.25, 0.5, 0.75, 1.0)


class Folds(NamedTuple):
    """F ways to leave something out of N photographs of P pairs.

    Attributes:
        train (Tensor): Photographs to fit, (F, N).
        held (Tensor): Photographs to answer, (F, N).
        seen (Tensor): Pairs that are not left out, (F, P).
    """
    train: Tensor
    held: Tensor
    seen: Tensor


def make_folds(rows: Tensor, pairs: Tensor, num_folds: int = 5, seed: int = 0) -> Folds:
    """Leaves pairs and photographs out in turn.

    Args:
        rows (Tensor): Pair of each photograph, (N,).
        pairs (Tensor): Attribute and object of each pair, (P, 2).
        num_folds (int): Defaults to 5.
        seed (int): Of the order. Defaults to 0.

    Returns:
        Folds: In each, every attribute and object keeps a pair.
    """
    rng = np.random.default_rng(seed)
    table, owner = pairs.cpu().numpy(), rows.cpu().numpy()
    seen = np.ones((num_folds, len(table)), bool)
    for turn, pair in enumerate(rng.permutation(len(table))):
        # The next fold in turn in which both primitives keep another pair.
        for fold in (np.arange(num_folds) + turn) % num_folds:
            rest = table[seen[fold]]
            if ((rest == table[pair]).sum(axis=0) > 1).all():
                seen[fold, pair] = False
                break
    turns = np.empty(len(owner), int)  # dealt out pair by pair, so that each fold has some of each
    turns[np.lexsort((rng.random(len(owner)), owner))] = np.arange(len(owner)) % num_folds
    left = turns == np.arange(num_folds)[:, None]
    known = seen[:, owner]
    return Folds(*(torch.from_numpy(part).to(rows.device)
                   for part in (known & ~left, left | ~known, seen)))


class HeldOut(NamedTuple):
    """A method and its answers for what was left out.

    Attributes:
        settings (Settings): Of the fit.
        auc (float): Of all answers together, in percent.
        hm (float): Best harmonic mean of them.
        bias (float): Bias of the unseen pairs that reaches it.
    """
    settings: Settings
    auc: float
    hm: float
    bias: float


class Choice(NamedTuple):
    """What was chosen.

    Attributes:
        best (HeldOut): The best settings.
        regressions (HeldOut): Those of two plain logistic regressions.
        texts (HeldOut | None): The text paths of a ``JoinedHead`` alone; None for other heads.
    """
    best: HeldOut
    regressions: HeldOut
    texts: HeldOut | None = None

    def __str__(self) -> str:
        """What was chosen and why, in one line."""
        chosen, plain = self.best.settings, f'two logistic regressions {self.regressions.auc:.1f}'
        found = f'AUC {self.best.auc:.1f} on pairs held out in turn'
        if self.texts is None:
            return (f'{found} ({plain}), with words {chosen.words:.1f} and pairs '
                    f'{chosen.pairs:.1f}')
        rivals = f'{plain}, text paths {self.texts.auc:.1f}'
        taken = {0.0: 'the regressions alone', 1.0: 'the text paths alone'}.get(
            chosen.texts, f'both, text paths with a share of {chosen.texts:.0%}')
        return f'{found} with {taken} ({rivals})'


Tried = tuple[HeldOut, Tensor, Tensor]
MOST_JOINED = 20  # regressions that are joined with the text paths


class CrossValidation:
    """Fits a head on the folds of its training images, for many settings.

    Args:
        head (RegressionHead): Says the names and their words.
        features (Tensor): f of N training images, (N, D).
        labels (dict[str, Tensor]): 'attr', 'obj' and 'pair', (N,) each.
        num_folds (int): Defaults to 5.
    """

    def __init__(self, head: RegressionHead, features: Tensor, labels: dict[str, Tensor],
                 num_folds: int = 5) -> None:
        self.head = head
        self.features = F.normalize(features.float(), dim=1)
        self.labels = labels
        self.candidates: Candidates = head.train_candidates
        self.names = head.names(self.candidates)
        self.folds = make_folds(labels['pair'], self.candidates.pairs, num_folds)
        self.fold, self.image = self.folds.held.nonzero().T

    def choose(self) -> Choice:
        """Settings with the largest AUC of the answers that were held out."""
        tried = []
        for words in WORDS[:1] if isinstance(self.head, JoinedHead) else WORDS:
            attr, obj = (self._logits(name, words, PENALTIES) for name in ('attr', 'obj'))
            tried += [(self.rate(Settings(PENALTIES[i], PENALTIES[j], 1.0, words, 0.0),
                                 attr[i], obj[j]), attr[i], obj[j])
                      for i, j in product(range(len(PENALTIES)), repeat=2)]
        plain = max((one for one in tried if not one[0].settings.words), key=lambda one: one[0].auc)
        if isinstance(self.head, JoinedHead):
            best, texts = self._with_texts(self.head, tried)
            return Choice(best, plain[0], texts)
        joined, attr, obj = max(tried, key=lambda one: one[0].auc)
        results = [joined]
        for penalty, pair in zip(PAIR_PENALTIES, self._logits(
                'pair', joined.settings.words, PAIR_PENALTIES)):
            results += [self.rate(joined.settings._replace(pair_penalty=penalty, pairs=share),
                                  attr, obj, pair) for share in SHARES if share]
        return Choice(max(results, key=lambda one: one.auc), plain[0])

    def _with_texts(self, head: JoinedHead, tried: list[Tried]) -> tuple[HeldOut, HeldOut]:
        """The best join of regressions, the best ones only, with the text paths; and these."""
        texts = self._text_scores(head)
        found = []
        for one, attr, obj in sorted(tried, key=lambda each: -each[0].auc)[:MOST_JOINED]:
            plain = mix(attr, obj, None, self.candidates.pairs, 0.0)
            found += [self.rated(one.settings._replace(texts=share),
                                 (1 - share) * plain + share * texts) for share in TEXTS]
        alone = self.rated(found[-1].settings, texts)
        return max(found, key=lambda one: one.auc), alone

    def _text_scores(self, head: JoinedHead) -> Tensor:
        """Log scores of the text paths for the H images that were left out, (H, P)."""
        found = []
        for number, (train, seen) in enumerate(zip(self.folds.train, self.folds.seen)):
            part = CompositionSpace(head.space.attributes, head.space.objects,
                                    self.candidates.pairs.cpu(), seen.cpu())
            other, rows = head.for_space(part), seen.cumsum(0) - 1
            assert isinstance(other, JoinedHead)
            labels = {name: label[train] for name, label in self.labels.items()}
            other.fit_texts(self.features[train], dict(labels, pair=rows[labels['pair']]))
            with torch.no_grad():
                found.append(other.text_scores(
                    self.features[self.image[self.fold == number]], self.candidates).pair)
        return torch.cat(found).clamp_min(TINY).log()

    def rate(self, settings: Settings, attr: Tensor, obj: Tensor,
             pair: Tensor | None = None) -> HeldOut:
        """AUC of answers with logits of the three regressions, (H, A), (H, O) and (H, P)."""
        return self.rated(settings, mix(attr, obj, pair, self.candidates.pairs, settings.pairs))

    def rated(self, settings: Settings, scores: Tensor) -> HeldOut:
        """AUC and best bias of log scores of the images that were left out, (H, P)."""
        curve = czsl_curve(*self.margins(scores))
        best = int(curve.hm.argmax())
        bias = float(np.clip(curve.bias[best], -MAX_BIAS, MAX_BIAS))
        return HeldOut(settings, curve.auc, float(curve.hm[best]), bias)

    def margins(self, scores: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Least bias at which each answer is right, and whether its pair was seen, (H,) each."""
        true = self.labels['pair'][self.image]
        seen = self.folds.seen[self.fold]
        is_seen = seen.gather(1, true[:, None])[:, 0]
        own = scores.gather(1, true[:, None])[:, 0]
        others = scores.scatter(1, true[:, None], -torch.inf)
        rival, other = (others.masked_fill(side != is_seen[:, None], -torch.inf).amax(dim=1)
                        for side in (seen, ~seen))
        margin = torch.where(own > rival, other - own, torch.inf)
        return margin.double().cpu().numpy(), is_seen.cpu().numpy()

    def _logits(self, name: str, words: float, penalties: tuple[float, ...]) -> Tensor:
        """Logits of the H images that were left out, (penalties, H, classes)."""
        kernels = [own.kernel(own, words) for own in self.names]
        pairs = self.candidates.pairs
        if name == 'pair':
            kernel = pair_kernel(*(part[pairs[:, i][:, None], pairs[:, i]]
                                   for i, part in enumerate(kernels)))
            known = self.folds.seen
        else:
            kernel = kernels[name == 'obj']
            known = self.folds.seen.new_ones(len(self.folds.seen), len(kernel))
        count, folds = len(penalties), len(self.folds.train)
        fits = fit(Problems(
            self.features, self.labels[name], self.folds.train.repeat(count, 1).to(self.features),
            kernel.expand(count * folds, -1, -1),
            kernel.new_tensor(penalties).repeat_interleave(folds), known.repeat(count, 1)),
            STEPS, TOLERANCE)
        return torch.stack([self._answers(Fits(*part), kernel, name != 'pair') for part in zip(
            fits.dual.split(folds), fits.bias.split(folds))])

    def _answers(self, fits: Fits, kernel: Tensor, bias: bool) -> Tensor:
        parts = [self.features[self.image[self.fold == fold]] @ dual.T @ kernel + bias * shift
                 for fold, (dual, shift) in enumerate(zip(*fits))]
        return torch.cat(parts)
