"""How far numbers of held-out answers may move: pairs drawn again, and the bias chosen again."""
from __future__ import annotations

import numpy as np

from .curve import czsl_curve

DRAWS = 200
QUANTILES = (0.025, 0.975)


def intervals(margin: np.ndarray, is_seen: np.ndarray, pair: np.ndarray,
              numbers: dict[str, float], draws: int = DRAWS, seed: int = 0) -> dict[str, float]:
    """95% intervals of ``auc``, and of ``seen``, ``unseen`` and ``hm`` at a bias that is chosen.

    Pairs are drawn with replacement, with all their answers, and each draw chooses its own bias.

    Args:
        margin (np.ndarray): As in :func:`~mmcluspro.evaluation.curve.czsl_curve`, shape (N,).
        is_seen (np.ndarray): Whether the true pair was seen, shape (N,).
        pair (np.ndarray): Row of the true pair, shape (N,).
        numbers (dict[str, float]): What was measured, in percent; the draws spread around it.
        draws (int): Defaults to 200.
        seed (int): Defaults to 0.

    Returns:
        dict: ``seen_low``, ``seen_high`` …, in percent.
    """
    rng = np.random.default_rng(seed)
    order = np.argsort(pair, kind='stable')
    starts = np.searchsorted(pair[order], np.unique(pair))
    groups = np.split(order, starts[1:])
    found = []
    for _ in range(draws):
        rows = np.concatenate([groups[i] for i in rng.integers(len(groups), size=len(groups))])
        curve = czsl_curve(margin[rows], is_seen[rows])
        best = int(curve.hm.argmax())
        found.append((curve.auc, curve.seen[best], curve.unseen[best], curve.hm[best]))
    drawn = np.asarray(found)
    spread = np.quantile(drawn - drawn.mean(axis=0), QUANTILES, axis=0)
    return {f'{name}_{end}': float(np.clip(numbers[name] + shift, 0, 100))
            for end, shifts in zip(('low', 'high'), spread)
            for name, shift in zip(('auc', 'seen', 'unseen', 'hm'), shifts)}
