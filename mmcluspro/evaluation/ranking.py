"""Words → photographs and photographs → words: recall@k and mean average precision."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from mmcluspro.datasets.space import CompositionSpace
from mmcluspro.registry import METRICS

KS = (1, 5, 10)
LARGEST = 500_000_000  # scores that are kept: 2 GB


def retrieval(scores: Any, targets: Any, seen: Any, ks: Sequence[int] = KS) -> dict[str, float]:
    """Recall@k and mAP of retrieval by attribute–object pairs, in percent.

    A query is a pair that at least one image shows: all N images are ranked by their score for it.
    The other way round, a query is an image, and all P pairs are ranked. Of equal scores, those of
    wrong images (pairs) come first.

    Args:
        scores (ndarray): Score of each pair, shape (N, P).
        targets (ndarray): Index of the true pair, shape (N,).
        seen (ndarray): Which pairs are seen, shape (P,).
        ks (Sequence[int]): Values of k. Defaults to 1, 5 and 10.

    Returns:
        dict: ``text_to_image_r{k}``: pairs with one of their images among the first k; ``map``,
        ``map_seen`` and ``map_unseen``: means over the pairs of the average precision; and
        ``image_to_text_r{k}``: images with their pair among the first k.

    Examples:
        >>> scores = [[0.9, 0.2], [0.6, 0.3], [0.7, 0.1]]
        >>> found = retrieval(scores, targets=[0, 1, 0], seen=[True, False], ks=[1])
        >>> found['text_to_image_r1'], found['map'], round(found['image_to_text_r1'], 1)
        (100.0, 100.0, 66.7)
    """
    table, targets = np.asarray(scores, np.float64), np.asarray(targets)
    precisions, firsts, queries = [], [], np.unique(targets)
    for pair in queries:
        right = targets == pair
        order = np.lexsort((right, -table[:, pair]))
        ranks = right[order].nonzero()[0] + 1
        precisions.append(float(np.mean(np.arange(1, len(ranks) + 1) / ranks)))
        firsts.append(ranks[0])
    own = table[np.arange(len(targets)), targets]
    places = (table >= own[:, None]).sum(1)
    known = np.asarray(seen, bool)[queries]
    found = {f'text_to_image_r{k}': 100 * float(np.mean(np.array(firsts) <= k)) for k in ks}
    for name, chosen in (('map', known | True), ('map_seen', known), ('map_unseen', ~known)):
        if chosen.any():
            found[name] = 100 * float(np.mean(np.array(precisions)[chosen]))
    return found | {f'image_to_text_r{k}': 100 * float(np.mean(places <= k)) for k in ks}


@METRICS.register_module()
class RetrievalMetric(BaseMetric):
    """:func:`retrieval` over the pairs of the closed world, without a bias.

    Unlike the other metrics, it keeps the scores (4 bytes for each image and pair).

    Args:
        ks (Sequence[int]): Values of k. Defaults to 1, 5 and 10.
        collect_device (str): 'cpu' or 'gpu'. Defaults to 'cpu'.
        prefix (str, optional): Defaults to 'retrieval'.
        collect_dir (str, optional): Folder for the exchange between ranks. Defaults to None.
    """

    default_prefix = 'retrieval'

    def __init__(self, ks: Sequence[int] = KS, collect_device: str = 'cpu',
                 prefix: str | None = None, collect_dir: str | None = None) -> None:
        super().__init__(collect_device, prefix, collect_dir)
        if not ks or any(not isinstance(k, int) or k < 1 for k in ks):
            raise ValueError(f'evaluator.ks must be positive integers, got {ks!r}.')
        self.ks = tuple(ks)

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Keeps the scores of one batch.

        Args:
            data_batch (Any): Unused.
            data_samples (Sequence[dict]): With ``closed_score`` of shape (P,), ``attr_label`` and
                ``obj_label``.
        """
        for sample in data_samples:
            scores = sample['closed_score'].float().cpu().numpy()
            if (len(self.results) + 1) * len(scores) > LARGEST:
                raise ValueError(f'{len(scores):,} pairs are too many to keep the scores of all '
                                 'images for RetrievalMetric: leave it out.')
            self.results.append((scores, int(sample['attr_label']), int(sample['obj_label'])))

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Ranks, logs and returns the numbers."""
        space = CompositionSpace.from_dict((self.dataset_meta or {})['space'])
        scores, attributes, objects = zip(*results)
        targets = space.lookup(torch.tensor(attributes), torch.tensor(objects))
        found = retrieval(np.stack(scores), targets, space.seen, self.ks)
        print_log('retrieval: ' + ', '.join(f'{name} {value:.1f}'
                                            for name, value in found.items()), 'current')
        return found
