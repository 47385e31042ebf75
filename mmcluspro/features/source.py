"""The source of stored features: the backbone's config, weights and surroundings."""
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mmcluspro.registry import MODELS
from mmcluspro.utils.digest import FINGERPRINT, file_digest, fingerprint
from mmcluspro.utils.files import weights_file

from .store import plain

# Fields of a backbone that do not change what it computes in evaluation.
NEUTRAL = ('frozen', 'with_cp', 'peft', '_scope_')
# Fields of a data_preprocessor: defaults of those for pixels, and those that leave pixels alone.
PIXELS = dict(mean=None, std=None, pad_size_divisor=1, pad_value=0, to_rgb=False)
LABELS = ('to_onehot', 'num_classes', 'batch_augments', '_scope_')
# The pool of features that hold all tokens of an image, one after the other.
TOKENS = 'tokens'


def one_vector(feature: Tensor, pool: str | None, name: str) -> Tensor:
    """Checks that a backbone gives one vector per image, shape (B, D); ``name`` is for messages."""
    if feature.ndim != 2:
        raise ValueError(
            f'{name} returns features of shape {tuple(feature.shape)}, but one vector per image '
            'is stored. Wrap it in mmcluspro.ProjectedBackbone, which pools.')
    return feature


@dataclass(frozen=True)
class FrozenPart:
    """The part of ``model.backbone`` whose features can be stored.

    A backbone class that wraps another one describes its frozen part with a classmethod
    ``frozen_part(cfg) -> FrozenPart``. All other backbones are stored whole.

    Attributes:
        backbone (dict): Config of the inner backbone; its forward maps images (B, 3, H, W) to a
            tuple of tensors, the last of which is stored.
        pool (str | None): How that tensor becomes one vector.
        pooled (Callable): (tensor, pool, name of the backbone) -> vectors (B, D).
        trains (str): The field that makes the part trainable; '' if it is frozen.
        wrapped (bool): Whether the class around it freezes it.
    """
    backbone: Mapping[str, Any]
    pool: str | None = None
    pooled: Callable[[Tensor, str | None, str], Tensor] = one_vector
    trains: str = ''
    wrapped: bool = True


def find_frozen_part(cfg: Mapping[str, Any]) -> FrozenPart:
    """Finds what is frozen in ``model.backbone`` of a config.

    Args:
        cfg (Mapping[str, Any]): ``model.backbone``.
    """
    part = FrozenPart(dict(cfg), wrapped=False)
    while describe := getattr(_resolve(part.backbone), 'frozen_part', None):
        inner: FrozenPart = describe(part.backbone)
        if part.wrapped:  # the outermost class pools
            inner = replace(inner, pool=part.pool, pooled=part.pooled)
        part = replace(inner, trains=part.trains or inner.trains)
    trains = part.trains or ('peft' if part.backbone.get('peft') else '')
    return replace(part, trains=trains)


def build_frozen(backbone: Mapping[str, Any]) -> tuple[nn.Module, int, list[str]]:
    """Builds a backbone with its weights and freezes it.

    Returns:
        tuple: The backbone, the fingerprint of its weights, and the names of the parameters that
        its own config leaves trainable.
    """
    tower: Any = MODELS.build(scoped(backbone))
    learns = [name for name, p in tower.named_parameters() if p.requires_grad]
    if hasattr(tower, 'init_weights'):
        logging.disable(logging.INFO)  # mmengine writes three lines per parameter
        try:
            tower.init_weights()
        finally:
            logging.disable(logging.NOTSET)
    tower.requires_grad_(False)
    tower.eval()  # mmpretrain's backbones return nothing here
    stamp = getattr(tower, FINGERPRINT, None)
    if stamp is None:
        stamp = fingerprint(dict(tower.named_parameters()))
    return tower, int(stamp), learns


def source_facts(backbone: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that tell one source of features from another, without building it.

    Args:
        backbone (dict): Config of the frozen backbone.

    Returns:
        dict: ``backbone``, its fields; ``weights``, the digests of those files named by it that
        are on this machine.
    """
    fields = {key: value for key, value in scoped(backbone).items()
              if key not in NEUTRAL and value is not None}
    return dict(backbone=plain(fields), weights=dict(_digests(backbone)))


def pixel_fields(preprocessor: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a ``data_preprocessor`` that decide what the backbone sees."""
    kind = preprocessor.get('type', 'ClsDataPreprocessor')
    name = kind.split('.')[-1] if isinstance(kind, str) else kind.__name__
    if name == 'FeaturePreprocessor':  # on images it is mmpretrain's
        name = 'ClsDataPreprocessor'
    fields = {key: value for key, value in preprocessor.items() if key not in LABELS}
    return plain({**PIXELS, **fields, 'type': name})


def _digests(cfg: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in cfg.items():
        if isinstance(value, Mapping):
            yield from _digests(value)
        elif key in ('pretrained', 'checkpoint') and isinstance(value, str):
            path: Path = weights_file(value)
            if path.is_file():
                yield value, file_digest(path)


def scoped(backbone: Mapping[str, Any]) -> dict[str, Any]:
    """A backbone whose type names its package: 'ResNet' is 'mmpretrain.ResNet'."""
    kind = backbone['type']
    plain_name = isinstance(kind, str) and '.' not in kind
    return dict(backbone, type=f'mmpretrain.{kind}' if plain_name else kind)


def _resolve(cfg: Mapping[str, Any]) -> type:
    kind = scoped(cfg)['type']
    found = MODELS.get(kind) if isinstance(kind, str) else kind
    if found is None:
        raise ValueError(f'model.backbone.type={kind!r} is not registered.')
    return found
