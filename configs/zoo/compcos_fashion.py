"""CompCos, closed world, on stored features of frozen DINOv2-S and GloVe (Fashion)."""
_base_ = ['../_base_/models/zoo_dinov2.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    neck=dict(out_channels=128, hidden=[128], norm=True, dropout=0.1),
    head=dict(type='mmcluspro.CompCosHead', text=dict(
        type='mmcluspro.LinearPairText', out_dim=128, temperature=0.1)))
