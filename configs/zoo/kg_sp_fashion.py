"""KG-SP on stored features of frozen DINOv2-S and GloVe (Fashion)."""
_base_ = ['../_base_/models/zoo_dinov2.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    neck=dict(
        out_channels=128, hidden=[128], paths=['attribute', 'object'], norm=True, dropout=0.1,
        last_act=True),
    head=dict(
        type='mmcluspro.KGSPHead', in_channels=128,
        text=dict(type='mmcluspro.WordTableText', learn_vectors=False)))
