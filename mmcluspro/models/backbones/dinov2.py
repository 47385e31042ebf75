"""DINOv2's vision transformer: mmpretrain's blocks, the published weights and positions."""
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.registry import MODELS

from .dino import DINO

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

    def __init__(self, arch: str | dict = 'small', pretrained: str | None = None,
                 img_size: int = 518, patch_size: int = 14, num_registers: int = 0,
                 offset: float | None = None, antialias: bool | None = None,
                 out_type: str = 'raw', **kwargs: Any) -> None:
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
        for number, layer in enumerate(self.layers):
            tokens = layer(tokens)
            if number in self.out_indices:
                last = number == self.num_layers - 1
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
