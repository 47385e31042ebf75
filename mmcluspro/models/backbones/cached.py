"""Stands in for a frozen backbone whose features are on disk: training needs no backbone."""
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from mmengine.model import BaseModule
from mmpretrain.models.utils import ClsDataPreprocessor
from torch import Tensor, nn

from mmcluspro.datasets.features import FACTS, command, differences, plain, read_facts
from mmcluspro.registry import MODELS

from ..clip_loader import WEIGHTS
from ..state import FINGERPRINT, fingerprint

# Fields of a backbone that do not change what it computes in evaluation.
NEUTRAL = ('frozen', 'with_cp', 'peft', '_scope_')
# Fields of a data_preprocessor: defaults of those for pixels, and those that leave them alone.
PIXELS = dict(mean=None, std=None, pad_size_divisor=1, pad_value=0, to_rgb=False)
LABELS = ('to_onehot', 'num_classes', 'batch_augments', '_scope_')


def source_facts(backbone: Mapping[str, Any]) -> dict[str, Any]:
    """What tells one source of features from another, without building it.

    Args:
        backbone (dict): Config of the frozen backbone.

    Returns:
        dict: ``backbone``, its fields; ``weights``, the digests of those files named by it that
        are on this machine.
    """
    fields = {key: value for key, value in backbone.items()
              if key not in NEUTRAL and value is not None}
    return dict(backbone=plain(fields), weights=dict(_digests(backbone)))


def _digests(cfg: Any) -> Iterator[tuple[str, str]]:
    for key, value in cfg.items():
        if isinstance(value, Mapping):
            yield from _digests(value)
        elif key in ('pretrained', 'checkpoint') and isinstance(value, str):
            path = WEIGHTS / 'tiny_clip.pt' if value == 'tiny_clip' else Path(value).expanduser()
            if path.is_file():
                digest = hashlib.blake2b(digest_size=16)
                with path.open('rb') as file:
                    while block := file.read(1 << 22):
                        digest.update(block)
                yield value, digest.hexdigest()


def pixel_fields(preprocessor: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a ``data_preprocessor`` that decide what the backbone sees."""
    kind = preprocessor.get('type', 'ClsDataPreprocessor')
    name = kind.split('.')[-1] if isinstance(kind, str) else kind.__name__
    if name == 'FeaturePreprocessor':  # on images it is mmpretrain's
        name = 'ClsDataPreprocessor'
    fields = {key: value for key, value in preprocessor.items() if key not in LABELS}
    return plain({**PIXELS, **fields, 'type': name})


def build_frozen(backbone: Mapping[str, Any]) -> tuple[nn.Module, int, list[str]]:
    """Builds a backbone with its weights and freezes it.

    Returns:
        tuple: The backbone, the fingerprint of its weights, and the names of the parameters that
        were not frozen by its own config.
    """
    tower: Any = MODELS.build(dict(backbone))
    learns = [name for name, p in tower.named_parameters() if p.requires_grad]
    if hasattr(tower, 'init_weights'):
        tower.init_weights()
    tower.requires_grad_(False)
    tower.eval()  # mmpretrain's backbones return nothing here
    stamp = getattr(tower, FINGERPRINT, None)
    if stamp is None:
        stamp = fingerprint(dict(tower.named_parameters()))
    return tower, int(stamp), learns


@MODELS.register_module()
class CachedFeatures(BaseModule):
    """Passes features through; images go through the backbone that made the features.

    The backbone is built only when an image comes, which is what happens when a model that was
    trained on features predicts. The fingerprint of its weights comes from the folder and is
    saved with the model, under the same key as by the backbone itself: checkpoints fit the
    config with images, and the other way round. Inside :class:`ProjectedBackbone` it takes the
    place of the inner ``backbone``.

    Args:
        backbone (dict): The frozen backbone, as in the config with images.
        features (str): Folder that ``tools/extract_features.py`` wrote; the datasets name the
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
        # In a list, so that it is no part of the model: it is neither trained nor saved.
        self._tower: list[nn.Module] = []
        self._compared = False
        self._around: dict[str, Any] = dict(pool=None)

    def expect(self, **around: Any) -> None:
        """Takes what the model does with images around the backbone, for the comparison.

        Args:
            pool (str | None): How ``ProjectedBackbone`` pools.
            preprocessor (dict): ``data_preprocessor`` of the model.
        """
        self._around.update(around)
        self._compared = False

    def init_weights(self) -> None:
        """Nothing to draw; takes over from the folder whose features these are."""
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
        changes = list(differences(stored['backbone'], asked['backbone'], 'backbone'))
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
        yield from differences(stored['pool'], self._around['pool'], 'backbone.pool')
        if 'preprocessor' in self._around:
            yield from differences(pixel_fields(stored['preprocessor']),
                                   pixel_fields(self._around['preprocessor']),
                                   'data_preprocessor')

    def _check_loaded(self, state_dict: dict, prefix: str, *rest: Any) -> None:
        theirs = state_dict.get(prefix + FINGERPRINT)
        if theirs is not None and not theirs.is_meta and 0 not in (int(theirs), self._stamp) and (
                int(theirs) != self._stamp):
            raise ValueError(
                f'The checkpoint was trained on features of other weights than those in '
                f'{self.features}. Set features to the folder that it was trained with.')


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
