"""CompCos, closed world, on stored features of the tiny CLIP (Shapes)."""
_base_ = ['../_base_/models/zoo_tiny.py', '../_base_/settings/shapes_features.py']
model = dict(
    space=_base_.space,
    neck=dict(out_channels=64, hidden=[64], norm=True, dropout=0.1),
    head=dict(type='mmcluspro.CompCosHead', text=dict(
        type='mmcluspro.LinearPairText', out_dim=64, temperature=0.1)))
