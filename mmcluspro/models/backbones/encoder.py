"""The frozen part of a model's image side, for the extraction of its features."""
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from mmcluspro.registry import MODELS

from .cached import CachedFeatures, build_frozen, source_facts
from .projected import ProjectedBackbone


def frozen_encoder(
        backbone: Mapping[str, Any]) -> tuple[nn.Module, Callable[[Tensor], Tensor], dict]:
    """Finds what is frozen in ``model.backbone`` of a config, and builds it.

    Of a :class:`ProjectedBackbone` that is the part before the projection, of
    :class:`CachedFeatures` the backbone that it stands for, and otherwise all of it.

    Args:
        backbone (dict): ``model.backbone`` of a config.

    Returns:
        tuple: The module; a function from images (B, 3, H, W) to features (B, D); and the facts
        that tell these features from others.
    """
    outer, inner, pool = _resolve(backbone), dict(backbone), None
    if issubclass(outer, ProjectedBackbone):
        if not backbone.get('frozen', True) or backbone.get('peft'):
            raise ValueError(_refusal('frozen=False' if not backbone.get('frozen', True) else
                                      'peft'))
        inner, pool = dict(backbone['backbone']), backbone.get('pool', 'avg')
        if '.' not in inner['type']:
            inner['type'] = f"mmpretrain.{inner['type']}"
    cached = issubclass(_resolve(inner), CachedFeatures)
    if cached:
        inner = dict(inner['backbone'])
    elif inner.get('peft'):
        raise ValueError(_refusal('peft'))
    tower, stamp, learns = build_frozen(inner)
    if learns and not cached and not issubclass(outer, ProjectedBackbone):
        raise ValueError(_refusal(f'{len(learns)} trainable parameters, first {learns[0]}'))

    def encode(images: Tensor) -> Tensor:
        feature = tower(images)
        feature = feature[-1] if isinstance(feature, (tuple, list)) else feature
        feature = ProjectedBackbone.pooled(feature, pool, type(tower).__name__)
        return feature.float()

    return tower, encode, dict(source_facts(inner), pool=pool, fingerprint=stamp)


def _resolve(cfg: Mapping[str, Any]) -> type:
    kind = cfg['type']
    found = MODELS.get(kind if '.' in kind else f'mmpretrain.{kind}') if isinstance(
        kind, str) else kind
    if found is None:
        raise ValueError(f'model.backbone.type={kind!r} is not registered.')
    return found


def _refusal(what: str) -> str:
    return (f'model.backbone has {what}: it trains, so that its features change and cannot be '
            'cached. Freeze it (for example --cfg-options model.backbone.peft=None), or take a '
            'config with a frozen backbone.')
