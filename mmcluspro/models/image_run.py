"""Runs a classifier over images, batch by batch: the one place that does outside the loops."""
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .structures import Features, as_features


class ImageBatch(NamedTuple):
    """Features of B images and their 'attr', 'obj' and 'pair' labels, shape (B,) each."""
    features: Features
    labels: dict[str, Tensor]


@torch.no_grad()
def run_images(model: Any, batches: Iterable[Any]) -> Iterator[ImageBatch]:
    """Runs a classifier in eval mode and without gradients; its mode is restored at the end.

    Args:
        model (CompositionalClassifier): The classifier.
        batches (Iterable): Collated samples, for example of a dataloader.

    Yields:
        ImageBatch: On the device of the model.
    """
    training = model.training
    model.eval()
    try:
        for batch in batches:
            data = model.data_preprocessor(batch, False)
            features = as_features(model.extract_feat(data['inputs']))
            yield ImageBatch(features, model.head.labels(data['data_samples']))
    finally:
        model.train(training)
