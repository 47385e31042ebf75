"""The data preprocessor of models that take stored features or images."""
from typing import Any

import torch
from mmpretrain.models.utils import ClsDataPreprocessor
from torch import Tensor

from mmcluspro.registry import MODELS


@MODELS.register_module()
class FeaturePreprocessor(ClsDataPreprocessor):
    """mmpretrain's preprocessor for images; features (B, D) are not normalised."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.plain = ClsDataPreprocessor()

    def forward(self, data: dict, training: bool = False) -> dict:
        """As in mmpretrain; ``inputs`` may be images or features."""
        inputs = data['inputs']
        if isinstance(inputs, (list, tuple)) and inputs[0].ndim == 1:
            inputs = torch.stack(list(inputs))
        if isinstance(inputs, Tensor) and inputs.ndim == 2:
            return self.plain(dict(data, inputs=inputs), training)
        return super().forward(data, training)
