"""OADis on stored features of the tiny CLIP (Shapes)."""
_base_ = ['../_base_/models/zoo_tiny.py', '../_base_/settings/shapes_features.py']
model = dict(
    space=_base_.space,
    neck=dict(
        _delete_=True, type='mmcluspro.OADisNeck', in_channels=64, hidden=128,
        out_channels=64, dropout=0.3),
    head=dict(
        type='mmcluspro.OADisHead', in_channels=128, dim=64,
        text=dict(type='mmcluspro.WordVectorText', out_dim=64, hidden_dim=64,
                  temperature=0.1)))
