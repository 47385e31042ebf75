"""Labels that are likely wrong: the confident joint of cross-validated answers.

Confident learning (Northcutt et al., 2021), as in cleanlab: an answer counts when its probability
is at least the mean probability of its class over the images that are labelled so. An image whose
best such answer is another class than its label is likely wrong. Beyond cleanlab, the answer must
be more probable than all others together: with many small classes, the means are so low that most
images would be listed.
"""
from __future__ import annotations

import torch
from torch import Tensor

from mmcluspro.models.softmax import Problems, fit

FOLDS = 5
SURE = 0.5  # least probability of an answer that counts
PENALTIES = (10.0, 100.0, 1000.0)  # of standardised features


def confident_errors(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The likely class of each image, which is its label where nothing speaks against it.

    Args:
        probabilities (Tensor): Held-out answers, shape (N, C).
        labels (Tensor): Class of each image, shape (N,).

    Returns:
        Tensor: Shape (N,).

    Examples:
        >>> answers = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.9, 0.1]])
        >>> confident_errors(answers, torch.tensor([0, 0, 1, 1, 1])).tolist()
        [0, 0, 1, 1, 0]
    """
    classes = probabilities.shape[1]
    own = probabilities.gather(1, labels[:, None])[:, 0]
    counts = torch.bincount(labels, minlength=classes).clamp(min=1)
    least = torch.zeros(classes, dtype=own.dtype).index_add_(0, labels, own) / counts
    sure = probabilities.masked_fill(probabilities < least.clamp(min=SURE), 0)
    best, likely = sure.max(dim=1)
    return torch.where(best > 0, likely, labels)


def held_out_answers(features: Tensor, labels: Tensor, classes: int, seed: int = 0) -> Tensor:
    """Probabilities of softmax regressions for images that they were not fitted to.

    Every fold has some images of each class; the penalty is that with the best likelihood.

    Args:
        features (Tensor): Shape (N, D).
        labels (Tensor): Shape (N,).
        classes (int): Number C of classes.
        seed (int): Of the folds. Defaults to 0.

    Returns:
        Tensor: Shape (N, C).
    """
    x = features.float()
    x = (x - x.mean(dim=0)) / x.std(dim=0).clamp(min=1e-6)
    mixed = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    fold = torch.empty(len(x), dtype=torch.long)
    fold[mixed[labels[mixed].argsort(stable=True)]] = torch.arange(len(x)) % FOLDS
    kept = (fold != torch.arange(FOLDS)[:, None]).float()  # (FOLDS, N)
    fits = fit(Problems(x, labels, kept.repeat(len(PENALTIES), 1),
                        x.new_tensor(PENALTIES).repeat_interleave(FOLDS), classes))
    found = []
    for number in range(len(PENALTIES)):
        own = fold + number * FOLDS
        logits = torch.stack([fits.weight[i] @ row + fits.bias[i] for i, row in zip(own, x)])
        found.append(logits.log_softmax(dim=1))
    fitness = torch.stack([answers.gather(1, labels[:, None]).mean() for answers in found])
    return found[int(fitness.argmax())].exp()
