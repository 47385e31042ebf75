"""CLIP's image tower: f = φ^vis(X), tuned with LoRA or bottleneck adapters (§3.2, Eq. 1)."""

from collections.abc import Mapping
from typing import Any

import open_clip
import torch
from open_clip.transformer import CustomResidualAttentionBlock
from torch import Tensor

from mmcluspro.fields import Unsaved
from mmcluspro.models.clip import load_clip
from mmcluspro.models.peft import Peft, fuse_attention, injected_modules
from mmcluspro.models.pixels import Pixels, clip_pixels
from mmcluspro.models.sources import DEFAULT, Arch, ClipWeights, Side
from mmcluspro.models.state import declare_restorable
from mmcluspro.models.structures import Features
from mmcluspro.registry import MODELS

from .frozen import FrozenTower, OutLayers, layer_numbers, listening
from .timm_vision import patches_of, pooled_alone, tokens_of


@MODELS.register_module()
class CLIPVision(FrozenTower):
    """Image tower of an open_clip model, from pixels to the joint space.

    Args:
        arch (str): An open_clip architecture or ``'tiny_clip'``. Defaults to 'ViT-L-14'.
        pretrained (str | None): Tag, local file or ``'tiny_clip'``, see ``load_clip``. Defaults
            to None, random weights.
        img_size (int | None): Image side. Defaults to None, the architecture's own.
        quickgelu (bool | None): Activation of the weights, if it is not known from them, see
            ``load_clip``. Defaults to None.
        peft (dict | None): ``dict(type='mmcluspro.LoRA', ...)`` or
            ``dict(type='mmcluspro.Bottleneck', ...)``. Defaults to None.
        frozen (bool): Train only the parameters that ``peft`` adds. Defaults to True.
        out_tokens (bool): Also return the projected tokens. Defaults to False.
        out_layers (Sequence[int]): Also return the raw tokens after these blocks, from 0 or, with
            negative numbers, from the end; -1 is before the last norm and the projection.
            Defaults to (), none.
        project_layers (bool): Pass the tokens of ``out_layers`` through the last norm and the
            projection, too. Defaults to False.
        with_cp (bool): Recompute the blocks' activations in the backward pass to save memory.
            Defaults to False.
    """

    def __init__(self, arch: Arch = 'ViT-L-14', pretrained: ClipWeights = None,
                 img_size: Side | None = None, quickgelu: bool | None = None, peft: Peft = None,
                 frozen: bool = True, out_tokens: bool = False, out_layers: OutLayers = (),
                 project_layers: bool = False, with_cp: Unsaved[bool] = False) -> None:
        super().__init__()
        visual = load_clip(arch, pretrained, img_size, quickgelu, 'image').visual
        if visual is None:
            raise ValueError(
                f'backbone.arch={arch!r} has no image tower of open_clip: it goes with '
                'mmcluspro.ProjectedBackbone around mmcluspro.DINOv2, see docs/fashion.md.')
        self.visual = visual
        self.own_pixels = clip_pixels(arch, pretrained, img_size)
        self.out_dim: int = open_clip.get_model_config(arch)['embed_dim']
        self.out_tokens = out_tokens
        if out_tokens:
            self._return_tokens(arch)
        self.timm = hasattr(visual, 'trunk')
        self.out_layers = layer_numbers(out_layers, self.blocks, f'arch={arch!r}')
        self.project_layers = project_layers
        if with_cp:
            self._use_checkpointing(arch)
        if frozen and pretrained is not None:
            declare_restorable(self)
        self.adapt('visual', frozen, peft)
        if with_cp:
            for update in injected_modules(self.visual):
                update.recompute = False  # type: ignore[assignment]  # the block does it
        if peft:
            fuse_attention(self.visual)

    @classmethod
    def pixels(cls, cfg: Mapping[str, Any]) -> Pixels:
        """How the pictures of the tower of a config are prepared, as open_clip says."""
        return clip_pixels(cfg.get('arch', DEFAULT), cfg.get('pretrained'), cfg.get('img_size'))

    def init_weights(self) -> None:
        """Does nothing: the weights were read at construction."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...] | Features:
        """Encodes images.

        Args:
            x (Tensor): Normalised images, shape (B, 3, H, W).

        Returns:
            tuple[Tensor, ...] | Features: (f,), or (tokens, f) with ``out_tokens``: f of shape
            (B, D), not normalised, and all tokens after the last norm and the projection, shape
            (B, 1 + patches, D), of which the first is f; in towers of timm, the others are the
            patches (no registers), each pooled alone. With ``out_layers`` Features, whose
            ``extra`` has ``layer_<n>``, the class token (without one, the mean of the patches)
            and the patches after block n, shape
            (B, 1 + patches, width of the tower), or D with ``project_layers``.
        """
        with listening(self.blocks, self.out_layers) as layers:
            if self.timm:
                return self._from_timm(x, layers)
            found = self.visual(x)
        # CoCa's tower always returns what its decoder reads, too.
        f, patches = found if isinstance(found, tuple) else (found, None)
        tokens = None
        if self.out_tokens:
            tokens = torch.cat([f[:, None], patches @ self.visual.proj], dim=1)
        if self.out_layers:
            if not self.visual.transformer.batch_first:
                layers = {name: layer.transpose(0, 1) for name, layer in layers.items()}
            if self.project_layers:
                layers = {name: self.visual.ln_post(layer) @ self.visual.proj
                          for name, layer in layers.items()}
            return Features(f, tokens=tokens, extra=layers)
        return (f, ) if tokens is None else (tokens, f)

    @property
    def blocks(self) -> Any:
        """The blocks of a vision transformer, None for other towers."""
        if self.timm:
            return getattr(self.visual.trunk, 'blocks', None)
        return getattr(getattr(self.visual, 'transformer', None), 'resblocks', None)

    def _from_timm(self, x: Tensor, layers: dict[str, Tensor]) -> tuple[Tensor, ...] | Features:
        """What :meth:`forward` returns, of a tower of timm; ``layers`` fills while it runs."""
        trunk, head = self.visual.trunk, self.visual.head
        features = trunk.forward_features(x)
        f = head(trunk.forward_head(features))
        tokens = None
        if self.out_tokens:
            alone = pooled_alone(trunk, head, patches_of(trunk, features))
            tokens = torch.cat([f[:, None], alone], dim=1)
        if not self.out_layers:
            return (f, ) if tokens is None else (tokens, f)
        extra = {name: pooled_alone(trunk, head, tokens_of(trunk, trunk.norm(layer)))
                 if self.project_layers else tokens_of(trunk, layer)
                 for name, layer in layers.items()}
        return Features(f, tokens=tokens, extra=extra)

    def _return_tokens(self, arch: str) -> None:
        visual = self.visual
        if hasattr(visual, 'trunk'):
            return
        plain = (getattr(visual, 'pool_type', None) == 'tok' and visual.attn_pool is None
                 and not visual.final_ln_after_pool and visual.proj is not None)
        if not plain:
            raise ValueError(
                f'backbone.out_tokens needs a vision transformer that pools by its class token, or '
                f'a tower of timm; arch={arch!r} is neither. Use a ViT such as ViT-B-32 or '
                'ViT-L-14, SigLIP or PE-Core.')
        visual.output_tokens = True

    def _use_checkpointing(self, arch: str) -> None:
        visual = self.visual
        # open_clip calls its custom blocks with arguments that they do not take.
        custom = any(isinstance(m, CustomResidualAttentionBlock) for m in visual.modules())
        if custom or not (hasattr(visual, 'transformer') or hasattr(visual, 'trunk')):
            raise ValueError(
                f'backbone.with_cp is not available for the image tower of arch={arch!r}, which '
                'is not made of plain transformer blocks. Set with_cp=False.')
        visual.set_grad_checkpointing(True)
