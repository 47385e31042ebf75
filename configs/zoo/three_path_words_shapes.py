"""The three-path baseline on stored features of the tiny CLIP and its word vectors (Shapes)."""
_base_ = ['../_base_/models/zoo_tiny.py', '../_base_/settings/shapes_features.py']
model = dict(
    space=_base_.space,
    neck=dict(_delete_=True, type='mmcluspro.PrimitiveAdapter', in_channels=64),
    head=dict(type='mmcluspro.ThreePathHead', text=dict(
        type='mmcluspro.WordVectorText', out_dim=64, hidden_dim=64, temperature=0.1)))
