"""Image towers of timm: DINOv3, PE-Spatial, EVA, ConvNeXt, alone or inside a CLIP of open_clip."""
from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import timm
import torch
from timm.data import resolve_data_config
from torch import Tensor, nn

from mmcluspro.errors import listed
from mmcluspro.fields import Refusal, shown
from mmcluspro.models.clip import read_weights
from mmcluspro.models.pixels import Pixels
from mmcluspro.models.sources import FileWeights, Side
from mmcluspro.models.state import declare_restorable
from mmcluspro.registry import MODELS

MODES = dict(center='shortest', squash='squash', border='longest')


def timm_arch(value: Any, where: str) -> str:
    """A name of timm's own list."""
    if isinstance(value, str) and timm.is_model(value.partition('.')[0]):
        return value
    raise Refusal(f'{where} must be an architecture of timm, got {shown(value)}')


def patches_of(trunk: Any, features: Tensor) -> Tensor:
    """The patches of what ``forward_features`` returned, without class and register tokens.

    Args:
        trunk (nn.Module): Of timm.
        features (Tensor): Tokens (B, L, C), or a map (B, C, H, W).

    Returns:
        Tensor: Shape (B, patches, C).
    """
    if features.ndim == 4:
        return features.flatten(2).transpose(1, 2)
    return features[:, getattr(trunk, 'num_prefix_tokens', 0):]


def tokens_of(trunk: Any, features: Tensor) -> Tensor:
    """The class token, or without one the mean of the patches, and the patches; (B, 1 + P, C)."""
    patches = patches_of(trunk, features)
    first = (features[:, :1] if getattr(trunk, 'num_prefix_tokens', 0) and has_class_token(trunk)
             else patches.mean(dim=1, keepdim=True))
    return torch.cat([first, patches], dim=1)


def has_class_token(trunk: Any) -> bool:
    """Whether the first token is one that gathers the picture, not a register."""
    return getattr(trunk, 'cls_token', None) is not None


def pooled_alone(trunk: Any, head: nn.Module, patches: Tensor) -> Tensor:
    """Each patch as if it were the whole picture: pooled alone, then normed and projected.

    That is what a token is in the joint space, whatever pools: the mean and a class token leave a
    single patch as it is, attention reads its value.

    Args:
        trunk (nn.Module): Of timm.
        head (nn.Module): What open_clip puts behind it.
        patches (Tensor): Shape (B, P, C).

    Returns:
        Tensor: Shape (B, P, out_dim).
    """
    alone = patches.flatten(0, 1)[:, None]
    if hasattr(trunk, 'blocks'):
        skipped = getattr(trunk, 'num_prefix_tokens', 0)
        attends = getattr(trunk, 'attn_pool', None) is not None
        if trunk.global_pool == 'token' and not attends or skipped == 0 or (
                attends and getattr(trunk, 'pool_include_prefix', True)):
            skipped = 0
        alone = torch.cat([alone.new_zeros(len(alone), skipped, alone.shape[2]), alone], dim=1)
    else:
        alone = alone.transpose(1, 2)[..., None]
    return head(trunk.forward_head(alone)).unflatten(0, patches.shape[:2])


@MODELS.register_module()
class TimmVision(nn.Module):
    """An image tower of timm, filled from a file.

    It comes frozen; :class:`ProjectedBackbone` around it decides with ``frozen`` and ``peft``, and
    pools.

    Args:
        arch (str): Its name in timm, perhaps with a tag, which says how pictures are prepared:
            ``'vit_small_patch16_dinov3.lvd1689m'``.
        pretrained (str | None): File of the weights, as timm or the authors publish them. Defaults
            to None, random weights.
        img_size (int | None): Image side. Defaults to None, the architecture's own.
        out_type (str): 'raw', the class token (without one, the mean of the patches) and the patch
            tokens after the last norm, shape (B, 1 + patches, C); 'pooled', the vector before
            timm's classifier, shape (B, C); 'featmap', what a convolutional tower returns, shape
            (B, C, h, w). Defaults to 'raw'.

    Examples:
        >>> tower = TimmVision('vit_tiny_patch16_224').eval()
        >>> tower(torch.zeros(2, 3, 224, 224))[0].shape
        torch.Size([2, 197, 192])
        >>> TimmVision.pixels(dict(arch='vit_small_patch16_dinov3.lvd1689m')).size
        256
    """

    def __init__(self, arch: Annotated[str, timm_arch], pretrained: FileWeights = None,
                 img_size: Side | None = None,
                 out_type: Literal['raw', 'pooled', 'featmap'] = 'raw') -> None:
        super().__init__()
        if not timm.is_model(arch.partition('.')[0]):
            near = timm.list_models(f'*{arch.partition(".")[0][:12]}*')
            raise ValueError(f'backbone.arch={arch!r} is not an architecture of timm. '
                             f'{"Did you mean " + listed(near[:5]) + "? " if near else ""}'
                             'timm.list_models() lists them all.')
        size: dict[str, Any] = {} if img_size is None else dict(img_size=img_size)
        # As in DINO: what is overwritten must not change what is drawn afterwards.
        with torch.random.fork_rng(devices=[]) if pretrained else nullcontext():
            try:
                self.trunk: Any = timm.create_model(arch, num_classes=0, **size)
            except TypeError:
                if img_size is None:
                    raise
                # Convolutions take any size.
                self.trunk = timm.create_model(arch, num_classes=0)
        self.arch, self.pretrained, self.out_type = arch, pretrained, out_type
        self.own_pixels = self.pixels(dict(arch=arch, img_size=img_size))
        if pretrained is not None:
            self._read(pretrained)
        self.requires_grad_(False)
        if pretrained is not None:
            declare_restorable(self)

    @classmethod
    def pixels(cls, cfg: Mapping[str, Any]) -> Pixels:
        """How pictures are prepared, as timm says for the tag."""
        found = timm.get_pretrained_cfg(cfg['arch'])
        said = resolve_data_config(pretrained_cfg=found.to_dict() if found else {})
        return Pixels.of(said['mean'], said['std'], cfg.get('img_size') or said['input_size'][-1],
                         interpolation=said['interpolation'],
                         resize_mode=MODES[said['crop_mode']],
                         crop_pct=1.0 if cfg.get('img_size') else said['crop_pct'])

    @property
    def layers(self) -> Any:
        """The blocks of a transformer, None for other towers."""
        return getattr(self.trunk, 'blocks', None)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Encodes images (B, 3, H, W)."""
        features = self.trunk.forward_features(x)
        if self.out_type == 'pooled':
            return (self.trunk.forward_head(features, pre_logits=True), )
        if self.out_type == 'featmap':
            return (features, )
        return (tokens_of(self.trunk, features), )

    def finished(self, tokens: Tensor) -> Tensor:
        """The tokens after a block, as :meth:`forward` returns those of the last one."""
        return tokens_of(self.trunk, self.trunk.norm(tokens))

    def _read(self, pretrained: str) -> None:
        path = Path(pretrained).expanduser()
        if not path.is_file():
            raise FileNotFoundError(f'backbone.pretrained={pretrained!r} does not exist. timm '
                                    f'names the source of {self.arch} on huggingface.co/timm.')
        weights = read_weights(path)[0]
        convert = getattr(sys.modules[type(self.trunk).__module__], 'checkpoint_filter_fn', None)
        weights = convert(weights, self.trunk) if convert else weights
        own = self.trunk.state_dict()
        weights = {key: value for key, value in weights.items()
                   if key in own or not key.startswith(('head.fc.', 'head.weight', 'head.bias',
                                                        'mask_token'))}
        wrong = [f'{key} is missing' for key in own if key not in weights]
        wrong += [f'{key} is unexpected' for key in weights if key not in own]
        wrong += [f'{key} is {tuple(weights[key].shape)} in the file and {tuple(value.shape)} in '
                  'the model' for key, value in own.items()
                  if key in weights and weights[key].shape != value.shape]
        if wrong:
            raise ValueError(f'backbone.pretrained={pretrained!r} does not fit backbone.arch='
                             f'{self.arch!r}: {listed(wrong, sign="; ")}.')
        self.trunk.load_state_dict(weights)
