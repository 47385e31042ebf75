"""CLIP's image tower: f = φ^vis(X), tuned with LoRA or bottleneck adapters (§3.2, Eq. 1)."""
import open_clip
import torch
from open_clip.transformer import CustomResidualAttentionBlock
from torch import Tensor

from mmcluspro.registry import MODELS

from ..clip_loader import load_clip
from ..state import declare_restorable
from .frozen import FrozenTower


@MODELS.register_module()
class CLIPVision(FrozenTower):
    """Image tower of an open_clip model, from pixels to the joint space.

    Args:
        arch (str): An open_clip architecture or ``'tiny_clip'``. Defaults to 'ViT-L-14'.
        pretrained (str | None): Tag, local file or ``'tiny_clip'``, see ``load_clip``. Defaults
            to None, random weights.
        img_size (int | None): Image side. Defaults to None, the architecture's own.
        quickgelu (bool | None): Activation of the weights where they do not tell, see
            ``load_clip``. Defaults to None.
        peft (dict | None): ``dict(type='mmcluspro.LoRA', ...)`` or
            ``dict(type='mmcluspro.Bottleneck', ...)``. Defaults to None.
        frozen (bool): Train nothing but what ``peft`` adds. Defaults to True.
        out_tokens (bool): Return the projected tokens, too. Defaults to False.
        with_cp (bool): Recompute the blocks' activations in the backward pass to save memory.
            Defaults to False.
    """

    def __init__(self, arch: str = 'ViT-L-14', pretrained: str | None = None,
                 img_size: int | None = None, quickgelu: bool | None = None,
                 peft: dict | None = None, frozen: bool = True, out_tokens: bool = False,
                 with_cp: bool = False) -> None:
        super().__init__()
        self.visual = load_clip(arch, pretrained, img_size, quickgelu).visual
        self.out_dim: int = open_clip.get_model_config(arch)['embed_dim']
        self.out_tokens = out_tokens
        if out_tokens:
            self._return_tokens(arch)
        if with_cp:
            self._use_checkpointing(arch)
        if frozen and pretrained is not None:
            declare_restorable(self)
        self.adapt('visual', frozen, peft)

    def init_weights(self) -> None:
        """Nothing to do: the weights were read at construction and must stay."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Encodes images.

        Args:
            x (Tensor): Normalised images, shape (B, 3, H, W).

        Returns:
            tuple[Tensor, ...]: (f,), or (tokens, f) with ``out_tokens``: f of shape (B, D), not
            normalised, and all tokens after the last norm and the projection, shape
            (B, 1 + patches, D), of which the first is f.
        """
        if not self.out_tokens:
            return (self.visual(x), )
        f, patches = self.visual(x)
        return torch.cat([f[:, None], patches @ self.visual.proj], dim=1), f

    def _return_tokens(self, arch: str) -> None:
        visual = self.visual
        plain = (getattr(visual, 'pool_type', None) == 'tok' and visual.attn_pool is None
                 and not visual.final_ln_after_pool and visual.proj is not None)
        if not plain:
            raise ValueError(
                f'backbone.out_tokens needs a vision transformer that pools by its class token; '
                f'arch={arch!r} does not. Use a ViT such as ViT-B-32 or ViT-L-14.')
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
