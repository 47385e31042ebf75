"""Any mmpretrain backbone in CLIP's place, with a projection to the text width (Table 9)."""
from torch import Tensor, nn

from mmcluspro.registry import MODELS

from .cached import CachedFeatures
from .frozen import FrozenTower


@MODELS.register_module()
class ProjectedBackbone(FrozenTower):
    """A backbone, pooling, and a linear projection.

    Args:
        backbone (dict): Any backbone of the registries, for example
            ``dict(type='mmpretrain.VisionTransformer', arch='b', out_type='cls_token')``.
        in_channels (int): Width of its last feature.
        out_dim (int): Width of f, that of the text features.
        pool (str | None): 'avg' averages over positions or tokens, 'cls' takes the first token,
            None expects one vector an image. A vector passes in any case. Defaults to 'avg'.
        frozen (bool): Train the projection and ``peft`` only. Defaults to True.
        peft (dict | None): LoRA with ``targets`` in the backbone, such as ``['attn.qkv']``.
            Defaults to None.
    """

    def __init__(self, backbone: dict, in_channels: int, out_dim: int, pool: str | None = 'avg',
                 frozen: bool = True, peft: dict | None = None) -> None:
        super().__init__()
        if pool not in ('avg', 'cls', None):
            raise ValueError(f"backbone.pool must be 'avg', 'cls' or None, got {pool!r}.")
        if '.' not in backbone['type']:
            backbone = dict(backbone, type=f"mmpretrain.{backbone['type']}")
        self.backbone = MODELS.build(backbone)
        if isinstance(self.backbone, CachedFeatures):
            self.backbone.expect(pool=pool)
        self.proj = nn.Linear(in_channels, out_dim)
        self.in_channels, self.out_dim, self.pool = in_channels, out_dim, pool
        self.adapt('backbone', frozen, peft)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        """Encodes images (B, 3, H, W) to (f,), f of shape (B, out_dim)."""
        feature = self.backbone(x)
        if isinstance(feature, (tuple, list)):
            feature = feature[-1]
        feature = self.pooled(feature, self.pool, type(self.backbone).__name__)
        if feature.shape[1] != self.in_channels:
            raise ValueError(
                f'backbone.in_channels={self.in_channels}, but the last feature of '
                f'{type(self.backbone).__name__} has {feature.shape[1]} channels; set it to that.')
        return (self.proj(feature), )

    @staticmethod
    def pooled(feature: Tensor, pool: str | None, name: str) -> Tensor:
        """(B, C, H, W), (B, L, C) or (B, C) → (B, C); ``name`` is for messages."""
        if feature.ndim == 2:
            return feature
        if pool == 'avg':
            return feature.mean(dim=(2, 3)) if feature.ndim == 4 else feature.mean(dim=1)
        if pool == 'cls' and feature.ndim == 3:
            return feature[:, 0]
        raise ValueError(
            f"backbone.pool={pool!r} does not fit a feature of shape {tuple(feature.shape)} of "
            f"{name}; set pool='avg' or let the backbone return one vector an image.")
