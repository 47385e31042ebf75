"""OADis on stored features of frozen DINOv2-S and GloVe (Fashion)."""
_base_ = ['../_base_/models/zoo_dinov2.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    neck=dict(
        _delete_=True, type='mmcluspro.OADisNeck', in_channels=768, hidden=512,
        out_channels=128, dropout=0.3),
    head=dict(
        type='mmcluspro.OADisHead', in_channels=512, dim=128,
        text=dict(type='mmcluspro.WordVectorText', out_dim=128, hidden_dim=128,
                  temperature=0.1)))
