"""ADE on stored features of frozen DINOv2-S and GloVe (Fashion)."""
_base_ = ['../_base_/models/zoo_dinov2.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    neck=None,
    head=dict(
        type='mmcluspro.ADEHead', in_channels=384, num_tokens=2, dim=128, num_heads=4,
        hidden=[128], out_channels=50, dropout=0.1,
        text=dict(type='mmcluspro.LinearPairText', out_dim=50, temperature=0.02)))
