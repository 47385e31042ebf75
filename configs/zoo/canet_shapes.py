"""CANet on stored features of the tiny CLIP (Shapes)."""
_base_ = ['../_base_/models/zoo_tiny.py', '../_base_/settings/shapes_features.py']
model = dict(
    space=_base_.space,
    neck=dict(
        _delete_=True, type='mmcluspro.CANetNeck', in_channels=64, out_channels=64),
    head=dict(
        type='mmcluspro.CANetHead', in_channels=64, dim=64, alpha=0.4,
        text=dict(type='mmcluspro.WordVectorText', out_dim=64, hidden_dim=64,
                  temperature=0.1)))
