"""SymNet on stored features of the tiny CLIP (Shapes)."""
_base_ = ['../_base_/models/zoo_tiny.py', '../_base_/settings/shapes_features.py']
model = dict(
    space=_base_.space,
    neck=dict(out_channels=64),
    head=dict(
        type='mmcluspro.SymNetHead', in_channels=64, hidden=128, coupling_hidden=128, dropout=0.1,
        text=dict(type='mmcluspro.WordTableText', learn_vectors=False)))
