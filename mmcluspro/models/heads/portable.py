"""Scores features with a table of texts, without torch."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..candidates import Candidates

Arrays = Mapping[str, np.ndarray]


class Portable(NamedTuple):
    """How to score the features of a head outside torch.

    Attributes:
        paths (tuple[str, ...]): The features that the graph returns, of 'attribute', 'object'
            and 'composition', unit norm.
        info (dict): Plain data that the reader of the table needs, as JSON takes it.
        score (Callable): What the reader computes: features by path, (B, D) each, and the table
            with ``text_a`` (A, D), ``text_o`` (O, D), ``text_c`` (P, D) and ``pairs`` (P, 2), to
            pair scores (B, P). Export compares it with the head's ``score``.
        arrays (Callable): From candidates to further arrays of the table, by name. Defaults to
            none.
    """

    paths: tuple[str, ...]
    info: dict[str, Any]
    score: Callable[[Arrays, Arrays], np.ndarray]
    arrays: Callable[[Candidates], Arrays] = lambda candidates: {}


def three_path_scores(features: Arrays, table: Arrays, fusion: str, scale: float,
                      evidence: float = 0.0) -> np.ndarray:
    """Eq. 13 in numpy, see :func:`~mmcluspro.models.heads.fuse`; shape (B, P).

    With ``evidence``, pairs that have prototypes ``pair_a`` and ``pair_o`` are compared with
    them, see :class:`~mmcluspro.models.heads.ClusProPlusHead`.
    """
    pair = scale * (features['composition'] @ table['text_c'].T)
    known = table['pair_a'].any(axis=1) if evidence else np.zeros(len(table['pairs']), bool)
    if known.any():
        raised = pair[:, known] + evidence * scale * (
            features['attribute'] @ table['pair_a'][known].T
            + features['object'] @ table['pair_o'][known].T)
        pair[:, known] = raised + (_logsumexp(pair[:, known]) - _logsumexp(raised))
    score = pair if fusion == 'logits' else _softmax(pair)
    if fusion == 'composition':
        return score
    attr = _softmax(scale * (features['attribute'] @ table['text_a'].T))
    obj = _softmax(scale * (features['object'] @ table['text_o'].T))
    return score + attr[:, table['pairs'][:, 0]] * obj[:, table['pairs'][:, 1]]


def _logsumexp(logits: np.ndarray) -> np.ndarray:
    most = logits.max(axis=1, keepdims=True)
    return most + np.log(np.exp(logits - most).sum(axis=1, keepdims=True))


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
