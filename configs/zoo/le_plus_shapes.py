"""LE+ on stored features of the tiny CLIP (Shapes)."""
_base_ = ['../_base_/models/zoo_tiny.py', '../_base_/settings/shapes_features.py']
model = dict(
    space=_base_.space,
    neck=dict(out_channels=64, last_act=True),
    head=dict(type='mmcluspro.LEPlusHead', text=dict(
        type='mmcluspro.LEPlusText', hidden=[64], out_dim=64)))
