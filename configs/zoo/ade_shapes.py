"""ADE on stored features of the tiny CLIP (Shapes)."""
_base_ = ['../_base_/models/zoo_tiny.py', '../_base_/settings/shapes_features.py']
model = dict(
    space=_base_.space,
    neck=None,
    head=dict(
        type='mmcluspro.ADEHead', in_channels=64, num_tokens=1, dim=64, num_heads=4,
        hidden=[64], out_channels=64, dropout=0.1,
        text=dict(type='mmcluspro.LinearPairText', out_dim=64, temperature=0.1)))
