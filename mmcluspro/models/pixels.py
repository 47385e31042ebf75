"""What an image tower sees of a picture: its mean, deviation and size, and the way to that size.

The facts come from those who trained the tower: open_clip's preprocessing of an architecture and
tag, timm's ``pretrained_cfg``, DINO's evaluation. A config need not repeat them.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from open_clip.transform import PreprocessCfg
from torch import nn

from mmcluspro.registry import MODELS

from .clip import arch_config, find_tag, tags_of

RESIZES = ('shortest', 'longest', 'squash')
IMAGENET: dict[str, Any] = dict(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


class Pixels(NamedTuple):
    """How a tower's pictures are prepared.

    Attributes:
        mean (tuple[float, ...]): Of red, green and blue, for values from 0 to 255.
        std (tuple[float, ...]): The same.
        size (int): Side of the square that the tower reads.
        interpolation (str): Of Pillow: 'bicubic', 'bilinear' and so on.
        resize_mode (str): 'shortest' resizes the short edge and cuts the middle out, 'longest'
            resizes the long edge and fills up, 'squash' changes the ratio of the sides.
        fill_color (int): Grey value beside the picture, for 'longest'.
        crop_pct (float): The side that is cut out, by the side that is resized to.

    Examples:
        >>> Pixels.of(size=256, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)).mean
        (127.5, 127.5, 127.5)
        >>> [step['type'] for step in Pixels.of(size=256).steps()]
        ['ResizeEdge', 'CenterCrop']
    """
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int = 224
    interpolation: str = 'bicubic'
    resize_mode: str = 'shortest'
    fill_color: int = 0
    crop_pct: float = 1.0

    @classmethod
    def of(cls, mean: Sequence[float] = PreprocessCfg.mean, std: Sequence[float] =
           PreprocessCfg.std, size: Any = 224, **fields: Any) -> Pixels:
        """From the words of open_clip and timm: values from 0 to 1, a size or two equal ones."""
        sides = {size} if isinstance(size, int) else set(size)
        if len(sides) != 1:
            raise ValueError(f'An image tower for pictures of {tuple(size)} px is not supported: '
                             'pictures are square. Use one for square pictures.')
        # Rounded: 255 · 0.26862954 in decimals, without the dust of binary fractions.
        return cls(tuple(round(255 * value, 8) for value in mean),
                   tuple(round(255 * value, 8) for value in std), sides.pop(), **fields)

    def replace(self, fields: Mapping[str, Any]) -> Pixels:
        """With other values of some fields, as the field ``pixels`` of a config gives them."""
        unknown = [name for name in fields if name not in self._fields]
        if unknown:
            raise ValueError(f'pixels has the fields {", ".join(self._fields)}, got {unknown[0]}.')
        if fields.get('resize_mode', RESIZES[0]) not in RESIZES:
            raise ValueError(f'pixels.resize_mode must be one of {", ".join(RESIZES)}, got '
                             f'{fields["resize_mode"]!r}.')
        return Pixels(**{**self._asdict(), **{
            name: tuple(value) if isinstance(value, (list, tuple)) else value
            for name, value in fields.items()}})

    def steps(self) -> list[dict[str, Any]]:
        """The steps of a pipeline that prepare a picture, without reading and packing it."""
        how = dict(backend='pillow', interpolation=self.interpolation)
        side = math.floor(self.size / self.crop_pct)
        if self.resize_mode == 'longest':
            return [dict(type='mmcluspro.PrepareImage', steps=[
                dict(step='fit', size=[self.size, self.size], fill=self.fill_color, **how)])]
        crop = [dict(type='CenterCrop', crop_size=self.size)]
        if self.resize_mode == 'squash':
            return [dict(type='Resize', scale=(side, side), **how), *crop[:side > self.size]]
        return [dict(type='ResizeEdge', scale=side, edge='short', **how), *crop]

    def normalisation(self) -> dict[str, Any]:
        """Fields of ``data_preprocessor``."""
        return dict(mean=list(self.mean), std=list(self.std), to_rgb=True)


def clip_pixels(arch: str, pretrained: str | None = None, img_size: int | None = None) -> Pixels:
    """Pixels of an open_clip model, as ``open_clip.create_model_and_transforms`` prepares them.

    Args:
        arch (str): The architecture.
        pretrained (str | None): A tag has its own pixels. A file does not say them: they are those
            of most tags of the architecture.
        img_size (int | None): Another side than the architecture's.
    """
    vision = arch_config(arch)['vision_cfg']
    tags = [find_tag(arch, pretrained)] if find_tag(arch, pretrained) else tags_of(arch)
    known = Counter(tuple((name, tag[name]) for name in (
        'mean', 'std', 'interpolation', 'resize_mode') if tag.get(name)) for tag in tags)
    fields = dict(known.most_common(1)[0][0]) if known else {}
    return Pixels.of(size=img_size or vision.get('image_size', 224), **fields)


def tower_pixels(backbone: Mapping[str, Any] | nn.Module | None) -> Pixels | None:
    """Pixels of an image tower, None for one that does not say them.

    Args:
        backbone (Mapping | nn.Module): ``model.backbone``. Its class, or that of the backbone
            inside it, says them with a classmethod ``pixels(cfg) -> Pixels``; what is built, with
            an attribute ``own_pixels``.
    """
    if isinstance(backbone, nn.Module):
        said = [getattr(part, 'own_pixels', None) for part in backbone.modules()]
        return next((pixels for pixels in said if isinstance(pixels, Pixels)), None)
    MODELS.import_from_location()
    part: Any = backbone
    while isinstance(part, Mapping):
        scope, _, name = str(part.get('type')).rpartition('.')
        owner: Any = MODELS.module_dict.get(name) if scope in ('', 'mmcluspro') else None
        if hasattr(owner, 'pixels'):
            return owner.pixels(part)
        part = part.get('backbone')
    return None


def preprocessor_of(backbone: Any, given: Any) -> Any:
    """``data_preprocessor`` with the mean and deviation of the tower where it has none.

    Args:
        backbone (Mapping | nn.Module): ``model.backbone``.
        given (Mapping | None): ``model.data_preprocessor``; what it says stays.
    """
    pixels = tower_pixels(backbone)
    if pixels is None or not isinstance(given, Mapping | None):
        return given
    return dict(pixels.normalisation(), **(given or {}))
