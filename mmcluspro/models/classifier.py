"""The classifier, backbone → neck → head with a label space, and running it over images."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import torch
from mmpretrain.models import ImageClassifier
from mmpretrain.models.backbones import ResNet, VisionTransformer
from mmpretrain.models.utils import ClsDataPreprocessor
from mmpretrain.structures import DataSample
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmcluspro.datasets import CompositionSpace
from mmcluspro.features import CachedFeatures
from mmcluspro.fields import OTHERS, Part, Unsaved, items, number
from mmcluspro.models.structures import Features, as_features, join
from mmcluspro.registry import MODELS

from .backbones.frozen import FrozenTower
from .candidates import Candidates
from .clip import shared_reading
from .heads import CompositionHead
from .necks import Neck
from .pixels import preprocessor_of
from .state import compact_state_hooks

Channels = Annotated[Sequence[float], items(number(-1e6, 1e6), 3, 3)]
OTHERS[ImageClassifier] = dict(
    pretrained=Unsaved[str], train_cfg=Unsaved[dict], data_preprocessor=Unsaved[dict])
OTHERS[ClsDataPreprocessor] = dict(
    mean=Channels | None, std=Channels | None, to_rgb=bool, to_onehot=Unsaved[bool],
    num_classes=Unsaved[int], batch_augments=Unsaved[dict])


@MODELS.register_module()
class CompositionalClassifier(ImageClassifier):
    """An image classifier over attribute-object pairs.

    Checkpoints contain the trained weights and the buffers, but not the frozen towers. The label
    space is saved in ``meta.dataset_meta``.

    Args:
        space (dict | CompositionSpace): The label space, or the dataset it comes from, for
            example ``dict(type='mmcluspro.UTZappos', data_root='data/ut-zap50k')``.
        backbone (dict | nn.Module): Returns :class:`~mmcluspro.models.Features`, or a tuple
            that ends with f, shape (B, D). Parts are configs or modules.
        head (dict | nn.Module): Computes losses and scores; the space is filled in.
        neck (dict | nn.Module, optional): Turns the features into f_a, f_o and f_c, Eq. 1.
            Defaults to None, for heads with the composition path only.
        full_state (bool): Save frozen weights too. Defaults to False.
        micro_batch (int, optional): Number of images that run through the backbone together in
            training. Activations are recomputed in the backward pass, so the backbone needs the
            memory of one micro-batch, while clustering and losses see the whole batch. Defaults to
            None: all images.
        channels_last (bool): Use the channels-last memory format for images and convolutions.
            Defaults to False.
        **kwargs: ``train_cfg``, ``data_preprocessor``, ``init_cfg`` and
            ``pretrained`` of mmpretrain's ImageClassifier. Mean and deviation that
            ``data_preprocessor`` does not give are those of the tower.

    Examples:
        >>> from mmcluspro.datasets import CompositionSpace
        >>> from mmcluspro.models.backbones import CLIPVision
        >>> from mmcluspro.models.heads import ThreePathHead
        >>> from mmcluspro.models.necks import PrimitiveAdapter
        >>> from mmcluspro.models.text import CLIPText
        >>> space = CompositionSpace(['wet', 'dry'], ['cat', 'dog'],
        ...                          [[0, 0], [0, 1], [1, 0]], [True, True, False])
        >>> text = CLIPText(space.attributes, space.objects, 'tiny_clip', 'tiny_clip')
        >>> model = CompositionalClassifier(
        ...     space, CLIPVision('tiny_clip', 'tiny_clip'),
        ...     ThreePathHead(space, text), PrimitiveAdapter(64))
        >>> model(torch.zeros(5, 3, 48, 48)).shape  # five images, three pairs
        torch.Size([5, 3])
    """

    def __init__(self, space: Unsaved[dict | CompositionSpace],
                 backbone: Annotated[dict | nn.Module,
                                     Part((FrozenTower, VisionTransformer, ResNet))],
                 head: Annotated[dict | nn.Module, Part((CompositionHead, ))],
                 neck: Annotated[dict | nn.Module | None, Part((Neck, ))] = None,
                 full_state: Unsaved[bool] = False, micro_batch: Unsaved[int | None] = None,
                 channels_last: Unsaved[bool] = False, **kwargs: Any) -> None:
        if micro_batch is not None and micro_batch < 1:
            raise ValueError(f'model.micro_batch must be positive or None, got {micro_batch}.')
        kwargs['data_preprocessor'] = preprocessor_of(backbone, kwargs.get('data_preprocessor'))
        with shared_reading():
            super().__init__(backbone, neck, head if isinstance(head, nn.Module)
                             else dict(head, space=space), **kwargs)
        compact_state_hooks(self, full_state)
        preprocessor = kwargs.get('data_preprocessor') or {}
        for part in self.backbone.modules():
            if isinstance(part, CachedFeatures) and isinstance(preprocessor, Mapping):
                part.expect(preprocessor=preprocessor)
        self.micro_batch = micro_batch
        self.channels_last = channels_last
        if channels_last:
            self.backbone.to(memory_format=torch.channels_last)

    @property
    def space(self) -> Any:
        """The label space of training."""
        return self.head.space

    def extract_feat(self, inputs: Tensor, stage: str = 'neck') -> Features:
        """Features of images.

        Args:
            inputs (Tensor): Normalised images, shape (B, 3, H, W).
            stage (str): 'neck', or 'backbone' for what it returned. Defaults to 'neck'.
        """
        if self.channels_last and inputs.dim() == 4:  # stored features have two dimensions
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        size = self.micro_batch
        if size and size < len(inputs) and torch.is_grad_enabled():
            outputs = join([as_features(checkpoint(self.backbone, part, use_reentrant=False))
                            for part in inputs.split(size)])
        else:
            outputs = self.backbone(inputs)
        if stage == 'neck' and self.with_neck:
            outputs = self.neck(outputs)
        return as_features(outputs)

    def forward(self, inputs: Tensor, data_samples: list[DataSample] | None = None,
                mode: str = 'tensor', worlds: Mapping[str, Candidates] | None = None) -> Any:
        """As in mmpretrain.

        Args:
            inputs (Tensor): Normalised images, shape (B, 3, H, W).
            data_samples (list[DataSample], optional): B samples. Defaults to None.
            mode (str): 'tensor', 'loss' or 'predict'. Defaults to 'tensor'.
            worlds (Mapping[str, Candidates], optional): As in :meth:`predict`.
        """
        if mode == 'predict':
            return self.predict(inputs, data_samples, worlds=worlds)
        return super().forward(inputs, data_samples, mode)

    def predict(self, inputs: Tensor, data_samples: list[DataSample] | None = None,
                worlds: Mapping[str, Candidates] | None = None, **kwargs: Any) -> list[DataSample]:
        """Adds scores to the samples.

        Args:
            inputs (Tensor): Normalised images, shape (B, 3, H, W).
            data_samples (list[DataSample], optional): B samples. Defaults to None: new ones.
            worlds (Mapping[str, Candidates], optional): Candidates by name; samples get a field
                ``<name>_score`` for each. Defaults to None: the pairs of all phases, as 'closed'.
        """
        return self.head.predict(self.extract_feat(inputs), data_samples, worlds)

    def val_step(self, data: dict | tuple | list) -> list:
        """Predicts a batch of a validation."""
        return self.test_step(data)

    def test_step(self, data: dict | tuple | list) -> list:
        """Predicts a batch of a test, whose ``worlds`` say which pairs are scored."""
        worlds = data.get('worlds') if isinstance(data, Mapping) else None
        prepared = self.data_preprocessor(data, False)
        return self(**prepared, mode='predict', worlds=worlds)


class ImageBatch(NamedTuple):
    """B images that a classifier has run over.

    Attributes:
        outputs (Any): What ``extract_feat`` returned.
        samples (list[DataSample]): Of the images.
        head (nn.Module): Of the classifier.
    """
    outputs: Any
    samples: list[DataSample]
    head: Any

    @property
    def features(self) -> Features:
        """The outputs by path."""
        return as_features(self.outputs)

    @property
    def labels(self) -> dict[str, Tensor]:
        """'attr', 'obj' and 'pair' labels, shape (B,) each."""
        return self.head.labels(self.samples)


@torch.no_grad()
def run_images(model: Any, batches: Iterable[Any]) -> Iterator[ImageBatch]:
    """Runs a classifier in eval mode and without gradients; its mode is restored at the end.

    Args:
        model (ImageClassifier): The classifier, ours or another one.
        batches (Iterable): Collated samples, for example of a dataloader.

    Yields:
        ImageBatch: On the device of the model.
    """
    training = model.training
    model.eval()
    try:
        for batch in batches:
            data = model.data_preprocessor(batch, False)
            yield ImageBatch(model.extract_feat(data['inputs']), data['data_samples'], model.head)
    finally:
        model.train(training)
