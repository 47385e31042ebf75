"""The three-path head: attribute, object and composition (Eq. 2-6 and 13)."""
from collections.abc import Sequence
from typing import Any

import torch
from mmengine.model import BaseModule
from mmpretrain.structures import DataSample
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.datasets import CompositionSpace, build_space
from mmcluspro.registry import MODELS

FUSIONS = ('probability', 'logits', 'composition')


def fuse(logits: tuple[Tensor | None, Tensor | None, Tensor], pairs: Tensor,
         fusion: str = 'probability') -> Tensor:
    """Scores of pairs from the logits of the three paths (Eq. 13).

    ``p(c) + p(a) p(o)``; with ``fusion='logits'`` the composition logits take
    the place of ``p(c)``, as in the released code, and with ``'composition'``
    only ``p(c)`` counts.

    Args:
        logits (tuple): Attribute (B, A), object (B, O) and composition
            (B, P) logits; the first two may be None for ``'composition'``.
        pairs (Tensor): Attribute and object of each pair, shape (P, 2).
        fusion (str): One of 'probability', 'logits', 'composition'.

    Returns:
        Tensor: Scores, shape (B, P).
    """
    attributes, objects, compositions = logits
    scores = compositions if fusion == 'logits' else compositions.softmax(dim=1)
    if fusion == 'composition' or attributes is None or objects is None:
        return scores
    p_attribute, p_object = attributes.softmax(dim=1), objects.softmax(dim=1)
    if len(pairs) == p_attribute.shape[1] * p_object.shape[1]:
        # All pairs, in order: the outer product needs no gather.
        return torch.baddbmm(
            scores.view(len(scores), p_attribute.shape[1], -1),
            p_attribute[:, :, None], p_object[:, None, :]).view_as(scores)
    return scores.addcmul(
        p_attribute.index_select(1, pairs[:, 0]), p_object.index_select(1, pairs[:, 1]))


def _cosine(features: Tensor, texts: Tensor) -> Tensor:
    return F.normalize(features.float(), dim=1) @ texts.float().T


@MODELS.register_module()
class ThreePathHead(BaseModule):
    """Classifies by cosine to the text features of three prompts.

    Args:
        space (CompositionSpace | dict): Label space, or what
            :func:`~mmcluspro.datasets.build_space` takes. The classifier
            fills it in from its own ``space``.
        text (dict): Config of the text side, for example
            ``dict(type='mmcluspro.CLIPText', arch='ViT-L-14')``. Its
            ``attributes`` and ``objects`` are filled in from the space.
        loss_weights (dict): λ of Eq. 6 for 'attr', 'obj' and 'pair'. A path
            of weight zero is not computed in training. Defaults to 1 each.
        fusion (str): How scores are made from the paths (:func:`fuse`).
            Defaults to 'probability'.
        init_cfg (dict, optional): As in mmengine. Defaults to None.
    """

    def __init__(self,
                 space: CompositionSpace | dict,
                 text: dict,
                 loss_weights: dict | None = None,
                 fusion: str = 'probability',
                 init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg)
        weights = dict(attr=1.0, obj=1.0, pair=1.0)
        unknown = set(loss_weights or {}) - set(weights)
        if unknown:
            raise ValueError(
                f"head.loss_weights has the keys 'attr', 'obj' and 'pair', got {sorted(unknown)}.")
        if fusion not in FUSIONS:
            raise ValueError(f'head.fusion must be one of {FUSIONS}, got {fusion!r}.')
        self.loss_weights = {**weights, **(loss_weights or {})}
        self.fusion = fusion
        self.space = build_space(space, 'train')
        self.text = MODELS.build(
            dict(text, attributes=self.space.attributes, objects=self.space.objects))
        self.register_buffer('train_pairs', self.space.train_pairs.clone(), persistent=False)
        self.set_worlds({'closed': build_space(space, 'all')})

    def set_worlds(self, worlds: dict[str, CompositionSpace]) -> None:
        """Says which pair sets :meth:`predict` scores.

        Args:
            worlds (dict): Space by name; the samples get a field
                ``<name>_score`` each.
        """
        for name, space in worlds.items():
            if (space.attributes, space.objects) != (self.space.attributes, self.space.objects):
                raise ValueError(
                    f'The {name} world has {len(space.attributes)} attributes and '
                    f'{len(space.objects)} objects that are not those of the model '
                    f'({len(self.space.attributes)} and {len(self.space.objects)}). model.space '
                    'and the datasets of the config must name the same data.')
        self.worlds = dict(worlds)
        self._pairs: dict[str, Tensor] = {name: space.pairs for name, space in worlds.items()}

    def world_pairs(self, world: str) -> Tensor:
        """Returns the pairs of a world on the device of the model, (P, 2)."""
        device = self.train_pairs.device
        if self._pairs[world].device != device:
            self._pairs[world] = self._pairs[world].to(device)
        return self._pairs[world]

    def logits(self, feats: tuple[Tensor, ...], pairs: Tensor,
               primitives: bool = True) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Cosines over temperature of the three paths.

        Args:
            feats (tuple): Ends with f_a, f_o and f_c, each of shape (B, D);
                without the primitives f_c is enough.
            pairs (Tensor): Pairs to score, shape (P, 2).
            primitives (bool): Whether the attribute and object paths are
                wanted. Defaults to True.

        Returns:
            tuple: Logits of shapes (B, A), (B, O) and (B, P); None for paths
            that were not wanted.
        """
        # One call for three paths, so that they share what dropout leaves of the vocabulary.
        texts = self.text(pairs) if primitives else (self.text.encode_pairs(pairs), )
        logits = self.compare(feats, texts)
        return (logits[0], logits[1], logits[2]) if primitives else (None, None, logits[0])

    def compare(self, feats: tuple[Tensor, ...], texts: Sequence[Tensor]) -> list[Tensor]:
        """Cosines over temperature.

        Args:
            feats (tuple): Ends with a feature for each path, shape (B, D).
            texts (Sequence[Tensor]): Unit-norm texts of each path, shape (T, D).

        Returns:
            list[Tensor]: Logits of each path, shape (B, T).
        """
        # Sixteen bits are too few for a softmax over cosines times 100.
        with torch.autocast(feats[-1].device.type, enabled=False):
            scale = self.text.logit_scale.exp()
            return [scale * _cosine(f, t) for f, t in zip(feats[-len(texts):], texts)]

    def forward(self, feats: tuple[Tensor, ...]) -> Tensor:
        """Scores over the first world's pairs, shape (B, P)."""
        return self.scores(feats, next(iter(self.worlds)))

    def scores(self, feats: tuple[Tensor, ...], world: str) -> Tensor:
        """Scores over the pairs of a world (Eq. 13), shape (B, P)."""
        pairs = self.world_pairs(world)
        return fuse(
            self.logits(feats, pairs, self.fusion != 'composition'), pairs, self.fusion)

    def loss(self, feats: tuple[Tensor, ...], data_samples: list[DataSample],
             **kwargs: Any) -> dict[str, Tensor]:
        """Cross-entropy of the three paths over the seen pairs (Eq. 3-6).

        Args:
            feats (tuple): f_a, f_o and f_c, each of shape (B, D).
            data_samples (list[DataSample]): With ``attr_label``,
                ``obj_label`` and ``pair_label``.

        Returns:
            dict[str, Tensor]: ``attr_loss``, ``obj_loss`` and ``pair_loss``.
        """
        weights = self.loss_weights
        labels = self.labels(data_samples)
        logits = self.logits(
            feats, self.train_pairs, bool(weights['attr'] or weights['obj']))
        return {
            f'{name}_loss': weights[name] * F.cross_entropy(logit, labels[name])
            for name, logit in zip(('attr', 'obj', 'pair'), logits)
            if weights[name] and logit is not None
        }

    def labels(self, data_samples: list[DataSample]) -> dict[str, Tensor]:
        """Labels of a batch by path, each of shape (B,)."""
        device = self.train_pairs.device
        return {
            name: torch.tensor([int(sample.get(f'{name}_label')) for sample in data_samples],
                               device=device)
            for name in ('attr', 'obj', 'pair')
        }

    def predict(self, feats: tuple[Tensor, ...],
                data_samples: list[DataSample | None] | None = None) -> list[DataSample]:
        """Adds ``<world>_score`` to the samples, for each world.

        Args:
            feats (tuple): f_a, f_o and f_c, each of shape (B, D).
            data_samples (list[DataSample], optional): Samples to fill.
                Defaults to None, for new ones.

        Returns:
            list[DataSample]: Samples; the first world's scores are also in
            ``pred_score``, and its best pair in ``pred_label``.
        """
        samples = [sample if sample is not None else DataSample()
                   for sample in data_samples or [None] * len(feats[-1])]
        for world in self.worlds:
            scores = self.scores(feats, world)
            best = scores.argmax(dim=1, keepdim=True)
            for sample, row, label in zip(samples, scores, best):
                sample.set_field(row, f'{world}_score')
                if world == next(iter(self.worlds)):
                    sample.set_pred_score(row).set_pred_label(label)
        return samples
