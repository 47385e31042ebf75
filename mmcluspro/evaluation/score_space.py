"""The space in which a bias is added to scores: their logarithms, or the scores themselves.

For scores s >= 0 of Eq. 13 the bias is added to z = log s; a head whose scores are logits has
z = s. The logarithm is monotone, so that pairs keep their order, and for a head with one path
log p and the logits differ by a constant per image: the sweep over z is then the sweep over
logits of the published evaluators.
"""
from __future__ import annotations

import math

import torch
from torch import Tensor

LINKS = ('log', 'identity')
SPACES = ('log', 'score')
LOG_ZERO = -150 * math.log(2)  # of a score that underflowed: below every positive float32


def log_scores(scores: Tensor, link: str = 'log') -> Tensor:
    """z of scores, in at least single precision.

    Args:
        scores (Tensor): Any shape.
        link (str): 'log' for scores of Eq. 13, 'identity' for logits. Defaults to 'log'.
    """
    check_link(link)
    scores = scores if scores.dtype == torch.float64 else scores.float()
    return scores.log().clamp_min(LOG_ZERO) if link == 'log' else scores


def check_link(link: str) -> None:
    """Raises a ValueError for an unknown link."""
    if link not in LINKS:
        raise ValueError(f'link must be one of {LINKS}, got {link!r}.')


def check_space(bias_on: str, field: str = 'bias_on') -> None:
    """Raises a ValueError for an unknown space, which names the config field."""
    if bias_on not in SPACES:
        raise ValueError(f"{field} must be 'log' or 'score', got {bias_on!r}.")
