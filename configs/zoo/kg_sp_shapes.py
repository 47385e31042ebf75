"""KG-SP on stored features of the tiny CLIP (Shapes)."""
_base_ = ['../_base_/models/zoo_tiny.py', '../_base_/settings/shapes_features.py']
model = dict(
    space=_base_.space,
    neck=dict(
        out_channels=64, hidden=[64], paths=['attribute', 'object'], norm=True, dropout=0.1,
        last_act=True),
    head=dict(
        type='mmcluspro.KGSPHead', in_channels=64,
        text=dict(type='mmcluspro.WordTableText', learn_vectors=False)))
