"""From the keys of a DINO checkpoint to those of mmpretrain's VisionTransformer.

DINO's vision transformer: mmpretrain's, with the published weights (Table 9).

DINOv2's vision transformer: mmpretrain's blocks, the published weights and positions.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Annotated, Any, Literal

import torch
from mmpretrain.models.backbones import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.errors import DownloadError, listed, reason_of
from mmcluspro.fields import OTHERS, Unsaved, choice, either, integer, items, number, record
from mmcluspro.models.pixels import IMAGENET, Pixels
from mmcluspro.models.sources import DinoWeights, Side
from mmcluspro.models.state import declare_restorable
from mmcluspro.registry import MODELS
from mmcluspro.utils.safe_load import load_checkpoint

VIT_ARCHS = ('s', 'small', 'b', 'base', 'l', 'large', 'h', 'huge', 'deit-t', 'deit-tiny', 'deit-s',
             'deit-small', 'deit-b', 'deit-base', 'dinov2-s', 'dinov2-small', 'dinov2-g',
             'dinov2-giant', 'eva-g', 'eva-giant')
VitArch = Annotated[str | dict, either(choice(*VIT_ARCHS), record(
    embed_dims=integer(1, 8192), num_layers=integer(1, 64), num_heads=integer(1, 256),
    feedforward_channels=integer(1, 32768)))]
VitSide = Side | Annotated[Sequence[int], items(integer(1, 1024), 2, 2)]
PatchSize = Annotated[int, integer(2, 512)]
OutType = Literal['raw', 'cls_token', 'featmap', 'avg_featmap']
OTHERS[VisionTransformer] = dict(
    arch=VitArch, img_size=VitSide, patch_size=PatchSize, out_type=OutType, final_norm=bool,
    with_cls_token=bool, qkv_bias=bool, pre_norm=bool,
    interpolate_mode=Literal['bicubic', 'bilinear', 'nearest'], drop_rate=Unsaved[float],
    drop_path_rate=Unsaved[float], frozen_stages=Unsaved[int])
BRANCHES = ('teacher', 'student')
# Whatever was around the network when it was saved: DDP, and DINO's multi-crop wrapper.
WRAPPERS = ('module.', 'backbone.')
RULES = (
    (r'^patch_embed\.proj\.', 'patch_embed.projection.'),
    (r'^blocks\.(\d+)\.norm([12])\.', r'layers.\1.ln\2.'),
    (r'^blocks\.(\d+)\.mlp\.fc1\.', r'layers.\1.ffn.layers.0.0.'),
    (r'^blocks\.(\d+)\.mlp\.fc2\.', r'layers.\1.ffn.layers.1.'),
    (r'^blocks\.(\d+)\.attn\.', r'layers.\1.attn.'),
    (r'^blocks\.(\d+)\.ls1\.gamma$', r'layers.\1.attn.gamma1.weight'),
    (r'^blocks\.(\d+)\.ls2\.gamma$', r'layers.\1.ffn.gamma2.weight'),
    (r'^norm\.', 'ln1.'),
)


def dino_weights(content: Any, branch: str = 'teacher',
                 name: str = 'The file') -> dict[str, Tensor]:
    """Extracts the network from a DINO file, under its plain keys.

    Args:
        content (Any): The published backbone (a state dict), or a training checkpoint with
            ``teacher`` and ``student``.
        branch (str): Which of the two to take. Defaults to 'teacher', the one DINO evaluates.
        name (str): What messages call the file.

    Returns:
        dict[str, Tensor]: ``blocks.0.attn.qkv.weight`` and so on. The projection head of DINO's
        training (``head.*`` beside ``backbone.*``) is left out.
    """
    if isinstance(content, Mapping) and any(key in content for key in BRANCHES):
        if branch not in content:
            raise ValueError(f'{name} has no {branch!r} network: set backbone.branch to '
                             f'{[key for key in BRANCHES if key in content][0]!r}.')
        content = content[branch]
    elif isinstance(content, Mapping) and isinstance(content.get('state_dict'), Mapping):
        content = content['state_dict']
    if not isinstance(content, Mapping) or not content or not all(
            isinstance(value, Tensor) for value in content.values()):
        raise ValueError(
            f'{name} contains no DINO weights: expected a dict of tensors, or a dict with one '
            f'under "teacher" or "student", got {_summary(content)}.')
    weights = {re.sub(r'^module\.', '', key): value for key, value in content.items()}
    if any(key.startswith('backbone.') for key in weights):
        weights = {key: value for key, value in weights.items() if not key.startswith('head.')}
    return {_unwrapped(key): value for key, value in weights.items()}


def _unwrapped(key: str) -> str:
    while key.startswith(WRAPPERS):
        key = key.split('.', 1)[1]
    return key


def _summary(content: Any) -> str:
    if isinstance(content, Mapping):
        return f'a dict with {", ".join(sorted(map(str, content))[:5]) or "nothing"}'
    return f'a {type(content).__name__}'


def to_mmpretrain(key: str) -> str:
    """The key of mmpretrain's VisionTransformer for one of DINO's; unknown ones stay."""
    for pattern, replacement in RULES:
        key, count = re.subn(pattern, replacement, key)
        if count:
            break
    return key


def check_weights(weights: Mapping[str, Tensor], own: Mapping[str, Tensor], name: str,
                  arch: Any, free: Iterable[str] = ()) -> None:
    """Refuses weights with a key too few, too many or of another shape.

    Args:
        weights (Mapping): From :func:`dino_weights`, with DINO's keys.
        own (Mapping): State dict of the model, with mmpretrain's keys.
        name (str): What messages call the file.
        arch (Any): What messages call the model.
        free (Iterable[str]): Keys whose shape may differ.
    """
    known = {to_mmpretrain(key): key for key in weights}
    problems = [f'{key} is missing' for key in own if key not in known]
    problems += [f'{key} is unexpected' for converted, key in known.items() if converted not in own]
    problems += [
        f'{key} is {tuple(weights[key].shape)} in the file and {tuple(own[converted].shape)} in '
        f'the model' for converted, key in known.items()
        if converted in own and converted not in free
        and weights[key].shape != own[converted].shape]
    if problems:
        raise ValueError(
            f'{name} does not fit backbone.arch={arch!r}: {listed(problems, sign="; ")}.')


@MODELS.register_module()
class DINO(VisionTransformer):
    """mmpretrain's VisionTransformer, filled from a DINO checkpoint.

    It comes frozen; :class:`ProjectedBackbone` around it decides with ``frozen`` and ``peft``.
    The published files: ``dino_vitbase16_pretrain.pth`` (``arch='base'``) and
    ``dino_deitsmall16_pretrain.pth`` (``arch='deit-small'``) of facebookresearch/dino.

    Args:
        arch (str | dict): As in mmpretrain. Defaults to 'base', ViT-B.
        pretrained (str | None): File or address of the checkpoint, the network alone or DINO's
            training checkpoint. Defaults to None, random weights.
        branch (str): 'teacher' or 'student', of a training checkpoint. Defaults to 'teacher',
            the network that DINO evaluates.
        **kwargs: ``img_size`` (the positional embedding is resampled), ``patch_size``,
            ``out_type`` and so on, as in mmpretrain.
    """

    #: Page of the weights and the name of a file there, for messages.
    SOURCE = ('github.com/facebookresearch/dino', 'dino_vitbase16_pretrain.pth')
    #: Keys of a file that the network does not need.
    UNUSED_KEYS: tuple[str, ...] = ()
    #: Keys whose shape may differ, because mmpretrain resamples them.
    FREE_KEYS: tuple[str, ...] = ('pos_embed', )

    def __init__(self, arch: VitArch = 'base', pretrained: DinoWeights = None,
                 branch: Literal['teacher', 'student'] = 'teacher', **kwargs: Any) -> None:
        if branch not in BRANCHES:
            raise ValueError(f'backbone.branch must be one of {BRANCHES}, got {branch!r}.')
        # Random numbers for weights that are overwritten would change what is drawn after them,
        # and training from cached features would start elsewhere than training from images.
        with torch.random.fork_rng(devices=[]) if pretrained else nullcontext():
            super().__init__(arch=arch, **kwargs)
            self.add_tokens()
        self.pretrained = pretrained
        self.own_pixels = self.pixels(kwargs)
        if pretrained is not None:
            self._read(pretrained, branch, arch)
        self.requires_grad_(False)
        if pretrained is not None:
            declare_restorable(self)

    @classmethod
    def pixels(cls, cfg: Mapping[str, Any]) -> Pixels:
        """How pictures are prepared: 224 px, or ``img_size``, with ImageNet's statistics."""
        side = cfg.get('img_size')
        return Pixels.of(**IMAGENET, size=side if isinstance(side, int) else 224)

    def add_tokens(self) -> None:
        """Adds parameters of a variant, before the weights are read."""

    def init_weights(self) -> None:
        """Random weights, unless they were read at construction."""
        if self.pretrained is None:
            super().init_weights()

    def _read(self, pretrained: str, branch: str, arch: Any) -> None:
        name = f'backbone.pretrained={pretrained!r}'
        try:
            content = load_checkpoint(pretrained)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f'{name} does not exist. The page {self.SOURCE[0]} links {self.SOURCE[1]} '
                '("backbone only"); set backbone.pretrained to its path.') from error
        except OSError as error:  # no network
            raise DownloadError(
                f'{name} could not be downloaded ({reason_of(error, 80)}). Fetch the file on '
                'another machine. To predict, give it with --weights backbone=FILE; in a config, '
                'set backbone.pretrained to its path.') from error
        weights = {key: value for key, value in dino_weights(content, branch, name).items()
                   if key not in self.UNUSED_KEYS}
        self._check_positions(weights, name)
        check_weights(weights, self.state_dict(), name, arch, free=self.FREE_KEYS)
        self.load_state_dict(
            {to_mmpretrain(key): value.float() for key, value in weights.items()})

    def _check_positions(self, weights: dict, name: str) -> None:
        """mmpretrain resamples the positional embedding; it must be one of a square."""
        positions = weights.get('pos_embed')
        if positions is None:
            return  # named as missing with the other keys
        patches = positions.shape[1] - self.num_extra_tokens if positions.ndim == 3 else -1
        if patches < 1 or math.isqrt(patches)**2 != patches or (
                positions.shape[2] != self.embed_dims):
            raise ValueError(
                f'{name} does not fit: pos_embed is {tuple(positions.shape)}, expected (1, 1 + '
                f'patches, {self.embed_dims}) with a square number of patches. Check '
                'backbone.arch.')


ARCHS = {
    'small': dict(embed_dims=384, num_layers=12, num_heads=6, feedforward_channels=1536),
    'base': dict(embed_dims=768, num_layers=12, num_heads=12, feedforward_channels=3072),
    'large': dict(embed_dims=1024, num_layers=24, num_heads=16, feedforward_channels=4096),
}


@MODELS.register_module()
class DINOv2(DINO):
    """DINOv2 (Oquab et al., 2023) for images of any size in whole patches, square or not.

    The position embedding keeps the grid of the file (37 × 37 patches of 518 px) and is resampled
    to that of each batch, once and as DINOv2's authors do it: bicubic, with scale factors that
    are a tenth of a patch too large and without antialiasing, or exactly and with antialiasing in
    the models with registers.

    It comes frozen; :class:`ProjectedBackbone` around it decides with ``frozen`` and ``peft``.
    LoRA's targets are ``attn.qkv``, ``attn.proj``, ``ffn.layers.0.0`` and ``ffn.layers.1``.
    The published files: ``dinov2_vit{s,b,l}14_pretrain.pth``, and with registers
    ``dinov2_vit{s,b,l}14_reg4_pretrain.pth``, of facebookresearch/dinov2.

    Args:
        arch (str | dict): 'small', 'base', 'large', or sizes as in mmpretrain. Defaults to
            'small'.
        pretrained (str | None): File or address of the weights. Defaults to None, random weights.
        img_size (int): Image side that the position embedding of the file is for. Defaults to
            518, that of all published files.
        patch_size (int): Patch side. Defaults to 14.
        num_registers (int): Register tokens: 0, or 4 for the ``_reg4`` files. Defaults to 0.
        offset (float | None): What is added to the number of patches in the scale factors of the
            position embedding. Defaults to None: 0.1 without registers, 0 with them.
        antialias (bool | None): Whether the position embedding is resampled with antialiasing.
            Defaults to None: False without registers, True with them.
        out_type (str): 'raw', class token and patch tokens after the last norm, shape
            (B, 1 + patches, C); 'cls_token', shape (B, C); 'featmap', shape (B, C, h, w).
            Defaults to 'raw'.
        **kwargs: ``branch``, ``out_indices``, ``drop_path_rate`` and so on, as in :class:`DINO`.
    """

    SOURCE = ('github.com/facebookresearch/dinov2', 'dinov2_vits14_pretrain.pth')
    UNUSED_KEYS = ('mask_token', )  # of its training
    FREE_KEYS = ()
    OUT_TYPES = {'raw', 'cls_token', 'featmap'}

    def __init__(self, arch: VitArch = 'small', pretrained: DinoWeights = None,
                 img_size: VitSide = 518, patch_size: PatchSize = 14,
                 num_registers: Annotated[int, integer(0, 64)] = 0,
                 offset: Annotated[float, number(0, 1)] | None = None,
                 antialias: bool | None = None, out_type: OutType = 'raw', **kwargs: Any) -> None:
        if isinstance(arch, str) and arch not in ARCHS:
            raise ValueError(f'backbone.arch must be one of {", ".join(ARCHS)}, or a dict of '
                             f'sizes, got {arch!r}.')
        if num_registers < 0:
            raise ValueError(f'backbone.num_registers must not be negative, got {num_registers}.')
        self.num_registers = num_registers
        self.patch_size = patch_size
        self.offset = (0.0 if num_registers else 0.1) if offset is None else offset
        self.antialias = bool(num_registers) if antialias is None else antialias
        super().__init__(
            arch=ARCHS[arch] if isinstance(arch, str) else arch, pretrained=pretrained,
            img_size=img_size, patch_size=patch_size, out_type=out_type,
            layer_scale_init_value=1e-5, **kwargs)

    @classmethod
    def pixels(cls, cfg: Mapping[str, Any]) -> Pixels:
        """How pictures are prepared: 224 px; ``img_size`` is that of the positions in the file."""
        return Pixels.of(**IMAGENET)

    def add_tokens(self) -> None:
        if self.num_registers:
            self.register_tokens = nn.Parameter(
                torch.zeros(1, self.num_registers, self.embed_dims))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Encodes images (B, 3, H, W); H and W are multiples of the patch side."""
        if x.shape[2] % self.patch_size or x.shape[3] % self.patch_size:
            raise ValueError(
                f'DINOv2 takes images in whole patches of {self.patch_size} px, got '
                f'{x.shape[3]} x {x.shape[2]}. Resize them to a multiple in the pipeline.')
        patches, grid = self.patch_embed(x)
        grid = int(grid[0]), int(grid[1])  # tensors while it is traced for an export
        tokens = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), patches], dim=1)
        tokens = tokens + self.positions(grid)
        if self.num_registers:
            registers = self.register_tokens.expand(x.shape[0], -1, -1)
            tokens = torch.cat([tokens[:, :1], registers, tokens[:, 1:]], dim=1)
        outputs = []
        for index, layer in enumerate(self.layers):
            tokens = layer(tokens)
            if index in self.out_indices:
                last = index == self.num_layers - 1
                outputs.append(self._format(self.ln1(tokens) if last else tokens, grid))
        return tuple(outputs)

    def positions(self, grid: tuple[int, int]) -> Tensor:
        """The position embedding for a grid of patches, shape (1, 1 + h · w, C)."""
        if tuple(grid) == tuple(self.patch_resolution):
            return self.pos_embed
        cls, patches = self.pos_embed[:, :1], self.pos_embed[:, 1:]
        patches = patches.transpose(1, 2).unflatten(2, self.patch_resolution)
        options: dict[str, Any] = dict(size=tuple(grid))
        if self.offset:
            options = dict(scale_factor=tuple(
                (new + self.offset) / old for new, old in zip(grid, self.patch_resolution)))
        patches = F.interpolate(patches.float(), mode='bicubic', antialias=self.antialias,
                                **options)
        return torch.cat([cls, patches.flatten(2).transpose(1, 2).to(cls.dtype)], dim=1)

    def _format(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        if self.out_type == 'cls_token':
            return tokens[:, 0]
        patches = tokens[:, 1 + self.num_registers:]
        if self.out_type == 'featmap':
            return patches.transpose(1, 2).unflatten(2, tuple(grid))
        return torch.cat([tokens[:, :1], patches], dim=1) if self.num_registers else tokens
