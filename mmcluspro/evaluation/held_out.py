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
from mmcluspro.models.heads.regression import ClassMeans, RegressionHead, Settings
from mmcluspro.models.softmax import Problems, fit

from .curve import MAX_BIAS, czsl_curve

PENALTIES = tuple(10.0 ** power for power in (-4, -3.5, -3, -2.5, -2, -1.5, -1))
PATH = slice(1, 6)  # the penalties that a fit takes the mean of
STEPS, TOLERANCE = 40, 1e-2  # of fits that are only compared
USUAL = np.array([0.5, 0.25, 0.25])  # shares of regressions, class means and text paths
STEADY = 20  # so many pairs that are held out weigh as much as the usual shares
SHARES = tuple(np.array(parts) / 4 for parts in product(range(5), repeat=3) if sum(parts) == 4)


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
        best (HeldOut): The settings of the fit.
        regressions (HeldOut): Those of two plain logistic regressions.
        shares (np.ndarray): Of regressions, class means and text paths in the scores, (3,).
    """
    best: HeldOut
    regressions: HeldOut
    shares: np.ndarray

    def __str__(self) -> str:
        """What was chosen and why, in one line."""
        parts = ', '.join(f'{share:.0%} {name}' for share, name in zip(
            self.shares, ('regressions', 'class means', 'text paths')) if share)
        return (f'AUC {self.best.auc:.1f} on pairs held out in turn (two logistic regressions '
                f'{self.regressions.auc:.1f}), with {parts}')


class CrossValidation:
    """Fits a head on the folds of its training images, in several ways.

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
        self.folds = make_folds(labels['pair'], self.candidates.pairs, num_folds)
        self.fold, self.image = self.folds.held.nonzero().T

    def choose(self) -> Choice:
        """Shares of the parts of the head, and the penalties of two plain regressions.

        The shares with the largest AUC of the answers that were held out count the more, the more
        pairs were held out: with few pairs the AUC says little, and the mean of all parts is
        better than any that it prefers. For the same reason no penalty is chosen.
        """
        rows, columns = self.candidates.pairs.T
        attr, obj = (self._logits(name) for name in ('attr', 'obj'))
        plain = max((self.rated(Settings(one, other), attr[i][:, rows] + obj[j][:, columns])
                     for (i, one), (j, other) in product(enumerate(PENALTIES), repeat=2)),
                    key=lambda each: each.auc)
        parts = [attr[PATH].mean(dim=0)[:, rows] + obj[PATH].mean(dim=0)[:, columns],
                 self._class_means()]
        parts += [self._text_scores(self.head)] if isinstance(self.head, JoinedHead) else []
        sizes = np.array([float(part.std(dim=1).mean()) + TINY for part in parts])
        tried = [each[:len(parts)] for each in SHARES if not each[len(parts):].any()]
        best = max(tried, key=lambda each: self.rated(plain.settings, torch.stack([
            float(weight) * part for weight, part in zip(each / sizes, parts)]).sum(dim=0)).auc)
        held = int((~self.folds.seen).any(dim=0).sum())
        usual = USUAL[:len(parts)] / USUAL[:len(parts)].sum()
        shares = (held * best + STEADY * usual) / (held + STEADY)
        first, means, *texts = shares / sizes
        settings = Settings(PENALTIES[PATH], PENALTIES[PATH], float(means / first),
                            float(sum(texts) / (first + sum(texts))))
        joined = (1 - settings.texts) * (parts[0] + settings.means * parts[1])
        for part in parts[2:]:
            joined = joined + settings.texts * part
        return Choice(self.rated(settings, joined), plain, shares)

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

    def _logits(self, name: str) -> Tensor:
        """Log probabilities for the H images that were left out, (penalties, H, classes)."""
        count, folds = len(PENALTIES), len(self.folds.train)
        fits = fit(Problems(
            self.features, self.labels[name], self.folds.train.repeat(count, 1).to(self.features),
            self.features.new_tensor(PENALTIES).repeat_interleave(folds),
            len(self.head.weight[name])), STEPS, TOLERANCE)
        return torch.stack([torch.cat([
            self.features[self.image[self.fold == fold]] @ weight.T + bias
            for fold, (weight, bias) in enumerate(zip(weights, biases))])
            for weights, biases in zip(*(part.split(folds) for part in fits))]).log_softmax(-1)

    def _class_means(self) -> Tensor:
        """Log odds of the class means for the H images that were left out, (H, P)."""
        found, sizes = [], (len(self.head.weight['attr']), len(self.head.weight['obj']))
        for number, train in enumerate(self.folds.train):
            means = ClassMeans.fit(
                self.features[train].double(), self.labels['attr'][train],
                self.labels['obj'][train], sizes)
            found.append(means.logits(
                self.features[self.image[self.fold == number]].double(), self.candidates.pairs))
        return torch.cat(found).float()
