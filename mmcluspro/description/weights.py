"""Names of the weights of frozen towers: from a closed table, never a path."""
from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from .fields import Refusal, shown

OWN = Path(__file__).resolve().parents[1] / 'models' / 'configs'  # our architectures
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
    from mmcluspro.models.clip_loader import load_clip
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


def check_clip_weights(part: dict, where: str) -> None:
    """``pretrained`` beside ``arch``: None, 'tiny_clip', 'file' or a tag of that architecture."""
    if 'pretrained' not in part or part['pretrained'] in (None, TINY, FILE):
        return
    if part['pretrained'] not in clip_tags(part.get('arch', 'ViT-L-14')):
        raise Refusal(f'{where}.pretrained must be a tag of {part.get("arch", "ViT-L-14")}, '
                      f"'tiny_clip', 'file' or None, got {shown(part['pretrained'])}")


def clip_source(arch: Any, pretrained: Any) -> Any:
    """Name in a description for the weights in a config: a path becomes 'file'."""
    if pretrained is None or pretrained == TINY:
        return pretrained
    return pretrained if pretrained in clip_tags(str(arch)) else FILE


def dino_weights(value: Any, where: str) -> str | None:
    """A published file of DINO by its name, 'file' or None."""
    if value is None or isinstance(value, str) and value in (FILE, *DINO_FILES):
        return value
    raise Refusal(f'{where} must be one of {", ".join(DINO_FILES)}, '
                  f"'file' or None, got {shown(value)}")


def dino_source(pretrained: Any) -> Any:
    """Name in a description for DINO weights in a config: published files by name."""
    if pretrained is None:
        return None
    stem = re.split(r'[/\\]', str(pretrained))[-1].removesuffix('.pth')
    return stem if stem in DINO_FILES else FILE


def file_source(pretrained: Any) -> Any:
    """Name in a description for a file of the user: its path is not included."""
    return None if pretrained is None else FILE
