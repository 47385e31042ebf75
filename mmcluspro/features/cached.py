"""Replaces a frozen backbone whose features are on disk: training needs no backbone."""
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from mmengine.model import BaseModule
from mmpretrain.models.utils import ClsDataPreprocessor
from torch import Tensor, nn

from mmcluspro.registry import MODELS
from mmcluspro.utils.digest import FINGERPRINT

from .source import TOKENS, FrozenPart, build_frozen, pixel_fields, scoped, source_facts
from .store import FACTS, command, differences, read_facts


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


@MODELS.register_module()
class CachedFeatures(BaseModule):
    """Returns stored features unchanged; images go through the backbone that made the features.

    The backbone is built only when it gets an image, that is, when a model trained on features
    predicts. The fingerprint of its weights comes from the folder and is saved with the model
    under the same key that the backbone itself uses, so checkpoints also fit the config with
    images, and vice versa. Inside ``ProjectedBackbone`` it replaces the inner ``backbone``.

    Args:
        backbone (dict): The frozen backbone, as in the config with images.
        features (str): Folder that ``mmcluspro extract-features`` wrote; the datasets name the
            same. It is not needed for prediction from images.
    """

    def __init__(self, backbone: dict, features: str) -> None:
        super().__init__()
        if backbone.get('peft'):
            raise ValueError('backbone.backbone.peft trains inside the backbone, whose features '
                             'then change: they cannot be cached. Set it to None.')
        self.source, self.features = dict(backbone), features
        self.register_buffer(FINGERPRINT, torch.zeros((), dtype=torch.int64))
        self._register_load_state_dict_pre_hook(self._check_loaded)
        # In a list, so that it is not a submodule: it is neither trained nor saved.
        self._tower: list[nn.Module] = []
        self._compared = False
        self._around: dict[str, Any] = dict(pool=None)

    #: A file may hold the weights of the backbone below this module; they are not needed here.
    stands_in = True

    @classmethod
    def frozen_part(cls, cfg: Mapping[str, Any]) -> FrozenPart:
        """The backbone that it stands in for (see :class:`FrozenPart`)."""
        return FrozenPart(dict(cfg['backbone']))

    @property
    def built(self) -> bool:
        """Whether the backbone was built, because it got an image."""
        return bool(self._tower)

    def expect(self, **around: Any) -> None:
        """Receives how the model prepares images, to compare it with the extraction.

        Args:
            pool (str | None): How ``ProjectedBackbone`` pools; 'tokens' if it takes them all.
            preprocessor (dict): ``data_preprocessor`` of the model.
        """
        self._around.update(around)
        self._compared = False

    def init_weights(self) -> None:
        """Reads from the folder which backbone the features come from."""
        if (Path(self.features).expanduser() / FACTS).exists():  # if not, the dataset says so
            self._compare()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Features (B, D) → (f,), the same; images (B, 3, H, W) → what the backbone returns."""
        if x.ndim == 2:
            if not self._compared:
                self._compare()
            return (x, )
        if not self._tower:
            tower, stamp, _ = build_frozen(self.source)
            if self._stamp not in (0, stamp):
                raise ValueError(
                    f'The model was trained on features of other weights than those of '
                    f'backbone.backbone={self.source}. Set pretrained to the weights of the '
                    'extraction.')
            self._tower.append(tower)
        with torch.no_grad():
            return self._tower[0].to(x.device)(x)

    @property
    def _stamp(self) -> int:
        stamp = getattr(self, FINGERPRINT)
        return 0 if stamp.is_meta else int(stamp)

    def _compare(self) -> None:
        """Refuses features of another backbone, or of other weights, than the config names."""
        stored, asked = read_facts(self.features), source_facts(self.source)
        changes = list(differences(scoped(stored['backbone']), asked['backbone'], 'backbone'))
        changes += [f'the file {name!r} holds other weights'
                    for name, digest in asked['weights'].items()
                    if stored['weights'].get(name, digest) != digest]
        if not changes and self._stamp not in (0, stored['fingerprint']):
            changes = ['the model was trained on those of other weights']
        changes += self._changes_around(stored)
        if changes:
            raise ValueError(
                f'The features in {self.features} are not those of the backbone in the config: '
                f'{"; ".join(changes)}. Set this as it was, or make them again in another folder:\n'
                f'  {command("NEW_FOLDER")}')
        getattr(self, FINGERPRINT).fill_(stored['fingerprint'])
        self._compared = True

    def _changes_around(self, stored: Mapping[str, Any]) -> Iterator[str]:
        """Names what images would meet before and after the backbone, and the features did not."""
        theirs, ours = stored['pool'], self._around['pool']
        if TOKENS in (theirs, ours):
            yield from differences(theirs == TOKENS, ours == TOKENS, 'backbone.out_tokens')
        else:
            yield from differences(theirs, ours, 'backbone.pool')
        if 'preprocessor' in self._around:
            yield from differences(pixel_fields(stored['preprocessor']),
                                   pixel_fields(self._around['preprocessor']),
                                   'data_preprocessor')

    def _check_loaded(self, state_dict: dict, prefix: str, *rest: Any) -> None:
        theirs = state_dict.get(prefix + FINGERPRINT)
        for key in [key for key in state_dict if key.startswith(prefix)
                    and key != prefix + FINGERPRINT]:
            del state_dict[key]
        if theirs is not None and not theirs.is_meta and 0 not in (int(theirs), self._stamp) and (
                int(theirs) != self._stamp):
            raise ValueError(
                f'The checkpoint was trained on features of other weights than those in '
                f'{self.features}. Set features to the folder that it was trained with.')
