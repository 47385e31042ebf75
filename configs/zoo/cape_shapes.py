"""CAPE on stored features of the tiny CLIP (Shapes)."""
_base_ = ['../_base_/models/zoo_tiny.py', '../_base_/settings/shapes_features.py']
model = dict(
    space=_base_.space,
    head=dict(
        type='mmcluspro.ThreePathHead', fusion='composition', loss_weights=dict(attr=0, obj=0),
        text=dict(type='mmcluspro.CAPEText', out_dim=64, num_heads=2, hidden_dim=256,
                  hidden_dropout=0.1, learn_vectors=False, temperature=0.1)))
