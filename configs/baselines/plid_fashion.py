"""PLID: prompts read the descriptions of their pair, which also give their distribution."""
_base_ = ['../_base_/models/one_path_fashion_clip.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    neck=dict(
        _delete_=True, type='mmcluspro.PrimitiveAdapter', in_channels=256, hidden=1024,
        norm=None, act='GELU'),
    head=dict(
        type='mmcluspro.PLIDHead',
        loss_weights=dict(attr=0.01, obj=0.01),
        text=dict(
            type='mmcluspro.PLIDText',
            prompt=dict(share_context=True, attr_dropout=0.0))))
