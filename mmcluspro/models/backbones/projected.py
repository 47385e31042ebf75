"""Any mmpretrain backbone in CLIP's place, with a projection to the text width (Table 9)."""
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from mmpretrain.models.backbones import ResNet, VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.features import CachedFeatures, FrozenPart
from mmcluspro.features.source import TOKENS, scoped
from mmcluspro.fields import OTHERS, Part, Unsaved, Width, integer, items
from mmcluspro.models.clip import read_weights
from mmcluspro.models.peft import Peft
from mmcluspro.models.sources import FileWeights
from mmcluspro.models.state import declare_restorable
from mmcluspro.models.structures import Features
from mmcluspro.registry import MODELS

from .clip_vision import CLIPVision
from .frozen import FrozenTower, OutLayers, layer_numbers, listening
from .timm_vision import TimmVision

OTHERS[ResNet] = dict(
    depth=Literal[18, 34, 50, 101, 152],
    out_indices=Annotated[Sequence[int], items(integer(0, 3), 1, 4)], frozen_stages=Unsaved[int],
    norm_eval=Unsaved[bool], with_cp=Unsaved[bool], zero_init_residual=Unsaved[bool],
    drop_path_rate=Unsaved[float])
POOLS = ('avg', 'cls', 'cls_avg', None)


@MODELS.register_module()
class ProjectedBackbone(FrozenTower):
    """A backbone, pooling, and a linear projection.

    With ``pretrained`` it is the image tower of a CLIP whose image side was locked in training:
    the projection is read and stays frozen, as in :class:`CLIPVision`.

    Args:
        backbone (dict): Any backbone of the registries, for example
            ``dict(type='mmpretrain.VisionTransformer', arch='b', out_type='cls_token')``.
        in_channels (int): Width of its last feature.
        out_dim (int, optional): Width of f, that of the text features. None leaves the
            projection out, for methods whose neck embeds the pooled feature. Defaults to None.
        pool (str | None): 'avg' averages over positions or tokens, 'cls' takes the first token,
            'cls_avg' puts the mean of the other tokens behind it (2 C channels, DINOv2's way),
            None expects one vector per image; 2-D features are returned unchanged. Defaults to
            'avg'.
        frozen (bool): Train the projection (if not ``pretrained``) and ``peft`` only. Defaults
            to True.
        peft (dict | None): LoRA with ``targets`` in the backbone, such as ``['attn.qkv']``.
            Defaults to None.
        pretrained (str | None): File with the projection under ``visual.proj.weight`` and
            ``visual.proj.bias``, such as one of ``tools/pretrain_fashion_clip.py``. Defaults to
            None, a random projection that trains.
        out_tokens (bool): Return the projected tokens, too; with ``pool`` 'cls' or 'cls_avg'.
            Stored features then hold all tokens of an image. Defaults to False.
        out_layers (Sequence[int]): Also return the tokens after these blocks, from 0 or, with
            negative numbers, from the end, projected after the last norm; with ``out_tokens`` and
            a vision transformer of mmpretrain or timm, DINO or DINOv2. Defaults to (), none.
    """

    def __init__(self, backbone: Annotated[dict, Part((
                     CLIPVision, TimmVision, VisionTransformer, ResNet))],
                 in_channels: Width, out_dim: Width | None = None,
                 pool: Literal['avg', 'cls', 'cls_avg'] | None = 'avg', frozen: bool = True,
                 peft: Peft = None, pretrained: FileWeights = None, out_tokens: bool = False,
                 out_layers: OutLayers = ()) -> None:
        super().__init__()
        if pool not in POOLS:
            raise ValueError(f'backbone.pool must be one of {POOLS}, got {pool!r}.')
        if out_tokens and pool not in ('cls', 'cls_avg'):
            raise ValueError("backbone.out_tokens needs pool='cls' or 'cls_avg', which are made of "
                             f'tokens, got {pool!r}.')
        if out_layers and not out_tokens:
            raise ValueError('backbone.out_layers needs backbone.out_tokens=True, too.')
        self.backbone = MODELS.build(scoped(backbone))
        if isinstance(self.backbone, CachedFeatures):
            if out_layers:
                raise ValueError('backbone.out_layers needs images: stored features have no layers '
                                 'of the backbone. Use a config that reads images.')
            self.backbone.expect(pool=TOKENS if out_tokens else pool)
        self.out_layers = layer_numbers(
            out_layers, getattr(self.backbone, 'layers', None), type(self.backbone).__name__)
        if out_dim is None and pretrained is not None:
            raise ValueError('backbone.pretrained has a projection: set backbone.out_dim, too.')
        self.proj: nn.Module = nn.Identity() if out_dim is None else nn.Linear(
            in_channels, out_dim)
        self.in_channels, self.out_dim, self.pool = in_channels, out_dim, pool
        self.pretrained, self.out_tokens = pretrained, out_tokens
        if pretrained is not None:
            self._read_projection(pretrained)
            if frozen:
                self.proj.requires_grad_(False)
                declare_restorable(self.proj)
        self.adapt('backbone', frozen, peft)

    def _read_projection(self, pretrained: str) -> None:
        name = f'backbone.pretrained={pretrained!r}'
        if not Path(pretrained).expanduser().is_file():
            raise FileNotFoundError(f'{name} does not exist. See docs/fashion.md for how to make '
                                    'the file.')
        weights = read_weights(Path(pretrained).expanduser())[0]
        for key, own in self.proj.state_dict().items():
            found = weights.get(f'visual.proj.{key}')
            if found is None or found.shape != own.shape:
                raise ValueError(
                    f'{name} does not fit: visual.proj.{key} is '
                    f'{"missing" if found is None else tuple(found.shape)}, expected '
                    f'{tuple(own.shape)}. Check backbone.in_channels and out_dim.')
        self.proj.load_state_dict({key: weights[f'visual.proj.{key}'] for key in
                                   self.proj.state_dict()})

    @classmethod
    def frozen_part(cls, cfg: Mapping[str, Any]) -> FrozenPart:
        """The part that can be stored: the inner backbone, pooled, or its tokens."""
        trains = 'peft' if cfg.get('peft') else '' if cfg.get('frozen', True) else 'frozen=False'
        pool = TOKENS if cfg.get('out_tokens') else cfg.get('pool', 'avg')
        return FrozenPart(scoped(cfg['backbone']), pool, cls.pooled, trains)

    def forward(self, x: Tensor) -> tuple[Tensor, ...] | Features:
        """Encodes images.

        Args:
            x (Tensor): Normalised images, shape (B, 3, H, W), or what was stored of them.

        Returns:
            tuple[Tensor, ...] | Features: (f,), or (tokens, f) with ``out_tokens``: f of shape
            (B, out_dim), and the projected tokens, shape (B, 1 + patches, out_dim), of which the
            first is f (with 'cls'), or whose first plus the mean of the others is f (with
            'cls_avg'). With ``out_layers`` Features, whose ``extra`` has ``layer_<n>``, such
            tokens after block n.
        """
        with listening(self.backbone.layers if self.out_layers else (), self.out_layers) as layers:
            feature = self.backbone(x)
        if isinstance(feature, (tuple, list)):
            feature = feature[-1]
        name = type(self.backbone).__name__
        if self.out_tokens:
            feature = self._tokens(feature, name)
        pooled = self.pooled(feature, self.pool, name)
        if pooled.shape[1] != self.in_channels:
            raise ValueError(
                f'backbone.in_channels={self.in_channels}, but the pooled feature of {name} has '
                f'{pooled.shape[1]} channels; set it to that.')
        if not self.out_tokens:
            return (self.proj(pooled), )
        tokens, f = self._project_tokens(feature), self.proj(pooled)
        if not self.out_layers:
            return tokens, f
        return Features(f, tokens=tokens, extra={
            name: self._project_tokens(self._finished(layer)) for name, layer in layers.items()})

    def _finished(self, tokens: Tensor) -> Tensor:
        """The tokens after a block, as the backbone returns those of its last one."""
        if isinstance(self.backbone, TimmVision):
            return self.backbone.finished(tokens)
        tokens = self.backbone.ln1(tokens)
        registers = getattr(self.backbone, 'num_registers', 0)
        return torch.cat([tokens[:, :1], tokens[:, 1 + registers:]], dim=1)

    def _tokens(self, feature: Tensor, name: str) -> Tensor:
        """Tokens (B, L, C) as they are; stored ones (B, L · C) in their shape."""
        width = self.in_channels // (2 if self.pool == 'cls_avg' else 1)
        if feature.ndim == 2 and self.in_channels < feature.shape[1] and (
                feature.shape[1] % width == 0):
            return feature.unflatten(1, (-1, width))
        if feature.ndim != 3:
            raise ValueError(
                f'backbone.out_tokens needs the tokens of {name}, got a feature of shape '
                f'{tuple(feature.shape)}. Stored features hold the tokens if out_tokens was set '
                'when they were extracted.')
        return feature

    def _project_tokens(self, tokens: Tensor) -> Tensor:
        """(B, 1 + patches, C) → (B, 1 + patches, out_dim), each kind by its part of the matrix."""
        if self.pool == 'cls' or not isinstance(self.proj, nn.Linear):
            return self.proj(tokens)
        first, others = self.proj.weight.split(tokens.shape[2], dim=1)
        return torch.cat([F.linear(tokens[:, :1], first, self.proj.bias),
                          F.linear(tokens[:, 1:], others)], dim=1)

    @staticmethod
    def pooled(feature: Tensor, pool: str | None, name: str) -> Tensor:
        """(B, C, H, W), (B, L, C) or (B, C) → (B, C), (B, 2 C), or (B, L · C) for tokens."""
        if feature.ndim == 2:
            return feature
        if pool == TOKENS and feature.ndim == 3:
            return feature.flatten(1)
        if pool == 'avg':
            return feature.mean(dim=(2, 3)) if feature.ndim == 4 else feature.mean(dim=1)
        if pool == 'cls' and feature.ndim == 3:
            return feature[:, 0]
        if pool == 'cls_avg' and feature.ndim == 3:
            return torch.cat([feature[:, 0], feature[:, 1:].mean(dim=1)], dim=1)
        raise ValueError(
            f"backbone.pool={pool!r} does not fit a feature of shape {tuple(feature.shape)} of "
            f"{name}; set pool='avg' or let the backbone return one vector per image.")
