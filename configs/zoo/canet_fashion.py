"""CANet on stored features of frozen DINOv2-S and GloVe (Fashion)."""
_base_ = ['../_base_/models/zoo_dinov2.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    neck=dict(
        _delete_=True, type='mmcluspro.CANetNeck', in_channels=768, out_channels=128, hidden=256),
    head=dict(
        type='mmcluspro.CANetHead', in_channels=768, dim=128, alpha=0.4,
        text=dict(type='mmcluspro.WordVectorText', out_dim=128, hidden_dim=128,
                  temperature=0.02)))
