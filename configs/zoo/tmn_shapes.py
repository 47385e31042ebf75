"""TMN on stored features of the tiny CLIP (Shapes)."""
_base_ = ['../_base_/models/zoo_tiny.py', '../_base_/settings/shapes_features.py']
model = dict(
    space=_base_.space,
    neck=None,
    head=dict(
        type='mmcluspro.TMNHead', in_channels=64, num_modules=12, num_negatives=15,
        text=dict(type='mmcluspro.WordTableText', learn_vectors=False)))
