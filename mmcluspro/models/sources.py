"""Names of the weights of frozen towers in a description: from closed lists, never a path."""
from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

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


class Known(NamedTuple):
    """What the keys of a file of weights say.

    Attributes:
        kind (str): 'dinov2' in its authors' layout, 'timm' or 'clip'.
        arch (str): 'small', 'base' or 'large' of DINOv2, a name of timm, or one of open_clip.
        width (int): Of a token; 0 for CLIP.
        registers (int): Register tokens of DINOv2.
    """
    kind: str
    arch: str
    width: int = 0
    registers: int = 0


DINOV2_SIZES = {384: 'small', 768: 'base', 1024: 'large'}
DINOV3 = {(384, False): 'small', (384, True): 'small_plus', (768, False): 'base',
          (1024, False): 'large', (1280, True): 'huge_plus'}


def recognise(path: str | Path) -> Known:
    """Which tower a file holds, by its keys and shapes; the name of the file says nothing.

    Args:
        path (str | Path): DINOv2 or DINOv3 as their authors or timm publish them, or both towers
            of a CLIP in the layout of open_clip (SigLIP, PE-Core, EVA, MobileCLIP …) or OpenAI.

    Raises:
        ValueError: Names what was found, and what to give instead.
    """
    from mmcluspro.models.clip import read_weights
    weights = read_weights(path)[0]
    shapes = {key: tuple(value.shape) for key, value in weights.items()}
    width = shapes.get('cls_token', (0, ))[-1]
    if {'cls_token', 'patch_embed.proj.weight'} <= shapes.keys() and not any(
            key.startswith('text') for key in shapes):
        registers = shapes.get('register_tokens', shapes.get('reg_token', (0, 0)))[1]
        if 'pos_embed' in shapes and 'blocks.0.ls1.gamma' in shapes and width in DINOV2_SIZES and (
                shapes['patch_embed.proj.weight'][-1] == 14):
            size = DINOV2_SIZES[width]
            return Known('timm', f'vit_{size}_patch14_reg4_dinov2', width) if (
                'reg_token' in shapes) else Known('dinov2', size, width, registers)
        gated = 'blocks.0.mlp.w1.weight' in shapes or 'blocks.0.mlp.fc1_g.weight' in shapes
        rotated = 'pos_embed' not in shapes and (
            'storage_tokens' in shapes or shapes.get('reg_token', (0, 0))[1] == 4)
        if rotated and (width, gated) in DINOV3:
            return Known('timm', f'vit_{DINOV3[width, gated]}_patch16_dinov3', width)
    found = _clip_of(shapes)
    if found:
        return Known('clip', found)
    some = ', '.join(sorted(shapes)[:3])
    raise ValueError(f'The weights in {path} (keys such as {some}) are none that is known: DINOv2, '
                     'DINOv3, or both towers of a CLIP as open_clip or OpenAI save them. Name the '
                     'architecture with --arch.')


def _clip_of(shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """The architecture of open_clip whose parameters have these shapes."""
    from open_clip.model import convert_to_custom_text_state_dict

    from mmcluspro.models.clip import arch_config, load_clip
    table = next((shapes[key] for key in ('text.token_embedding.weight', 'token_embedding.weight')
                  if key in shapes), None)
    length = next((shapes[key][0] for key in ('text.positional_embedding', 'positional_embedding')
                   if key in shapes), None)
    if table is None or length is None:
        return None
    scalars = ('logit_scale', 'logit_bias')
    for arch in sorted({*_models()} - {path.stem for path in OWN.glob('*.json')}, key=_plainness):
        text = arch_config(arch)['text_cfg']
        if 'hf_model_name' in text or table != (
                text.get('vocab_size', 49408), text.get('width', 512)) or (
                text.get('context_length', 77) != length):
            continue
        with torch.device('meta'):
            own = {key: tuple(value.shape) for key, value in load_clip(arch).state_dict().items()}
        theirs = dict(shapes)
        if 'positional_embedding' in theirs and 'text.positional_embedding' in own:
            theirs = convert_to_custom_text_state_dict(theirs)
        if all(theirs.get(key) == shape for key, shape in own.items() if key not in scalars):
            return arch
    return None


def _plainness(arch: str) -> tuple[bool, bool, int, str]:
    """Order in which architectures of equal shapes are taken: published, plain, short."""
    return not clip_tags(arch), arch.endswith('-quickgelu'), len(arch), arch
