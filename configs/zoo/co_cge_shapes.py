"""Co-CGE, closed world, on stored features of the tiny CLIP (Shapes)."""
_base_ = ['../_base_/models/zoo_tiny.py', '../_base_/settings/shapes_features.py']
model = dict(
    space=_base_.space,
    head=dict(type='mmcluspro.CoCGEHead', text=dict(
        type='mmcluspro.GraphText', out_dim=64, hidden_dims=[256], dropout=0.1,
        learn_vectors=False, temperature=0.1)))
