"""Names of the weights of frozen towers in a description: from closed lists, never a path."""
from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import torch

from mmcluspro.errors import shown
from mmcluspro.fields import Refusal, Source, integer, optional, text

OWN = Path(__file__).resolve().parent / 'configs'  # our architectures
FILE = 'file'  # a file of the user's disk: the user gives it again
TINY = 'tiny_clip'
DINO_FILES = {
    name: f'https://dl.fbaipublicfiles.com/dino/{name}/{name}.pth'
    for name in ('dino_vitbase16_pretrain', 'dino_deitsmall16_pretrain',
                 'dino_vitbase8_pretrain', 'dino_deitsmall8_pretrain')}
DINO_FILES.update({
    f'{name}{kind}_pretrain':
    f'https://dl.fbaipublicfiles.com/dinov2/{name}/{name}{kind}_pretrain.pth'
    for name in ('dinov2_vits14', 'dinov2_vitb14', 'dinov2_vitl14') for kind in ('', '_reg4')})


def clip_arch(value: Any, where: str) -> str:
    """A name of open_clip's own list, or of ours."""
    own = {path.stem for path in OWN.glob('*.json')}
    if isinstance(value, str) and (value in own or value in _models()):
        return value
    raise Refusal(f'{where} must be an architecture of open_clip, got {shown(value)}')


def _models() -> list[str]:
    import open_clip
    return open_clip.list_models()


@lru_cache(maxsize=8)
def clip_numbers(arch: str) -> int:
    """Parameters and buffers of both towers, counted without memory for them."""
    from mmcluspro.models.clip import load_clip
    with torch.device('meta'):
        model = load_clip(arch)
    return sum(value.numel() for value in (*model.parameters(), *model.buffers()))


def clip_tags(arch: str) -> list[str]:
    """The tags of an architecture, with those of its other activation."""
    import open_clip
    family = arch.removesuffix('-quickgelu')
    return [*open_clip.list_pretrained_tags_by_model(arch),
            *open_clip.list_pretrained_tags_by_model(family)]


def tag_activation(arch: str, tag: str) -> bool:
    """Whether the weights of a tag were trained with QuickGELU."""
    from open_clip import pretrained
    found = (pretrained.get_pretrained_cfg(arch, tag)
             or pretrained.get_pretrained_cfg(arch.removesuffix('-quickgelu'), tag))
    return bool(found.get('quick_gelu'))


class ClipSource(Source):
    """Weights of a CLIP: None, 'tiny_clip', 'file' or a tag of open_clip for the ``arch``."""

    def __call__(self, value: Any, where: str) -> str | None:
        return optional(text(100))(value, where)

    def name(self, value: Any, part: Mapping[str, Any]) -> str | None:
        if value is None or value == TINY or value in clip_tags(str(part['arch'])):
            return value
        return FILE

    def fit(self, part: Mapping[str, Any], where: str) -> None:
        arch, value = part.get('arch', DEFAULT), part.get('pretrained')
        if value not in (None, TINY, FILE) and value not in clip_tags(arch):
            raise Refusal(f"{where}.pretrained must be a tag of {arch}, 'tiny_clip', 'file' or "
                          f'None, got {shown(value)}')


class DinoSource(Source):
    """Weights of DINO or DINOv2: a published file by its name, 'file' or None."""

    def __call__(self, value: Any, where: str) -> str | None:
        if value is None or isinstance(value, str) and value in (FILE, *DINO_FILES):
            return value
        raise Refusal(f'{where} must be one of {", ".join(DINO_FILES)}, '
                      f"'file' or None, got {shown(value)}")

    def name(self, value: Any, part: Mapping[str, Any]) -> str | None:
        if value is None:
            return None
        stem = re.split(r'[/\\]', str(value))[-1].removesuffix('.pth')
        return stem if stem in DINO_FILES else FILE


class FileSource(Source):
    """A file of the user, or None."""

    def __call__(self, value: Any, where: str) -> str | None:
        if value is None or isinstance(value, str) and value == FILE:
            return value
        raise Refusal(f"{where} must be 'file' or None, got {shown(value)}")

    def name(self, value: Any, part: Mapping[str, Any]) -> str | None:
        return None if value is None else FILE


DEFAULT = 'ViT-L-14'
Arch = Annotated[str, clip_arch]
ClipWeights = Annotated[str | None, ClipSource()]
DinoWeights = Annotated[str | None, DinoSource()]
FileWeights = Annotated[str | None, FileSource()]
Side = Annotated[int, integer(1, 1024)]  # with the patches, it bounds the tokens
