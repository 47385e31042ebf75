"""PLID on the shipped tiny CLIP, without dropout."""
_base_ = 'three_path_tiny.py'
model = dict(
    backbone=dict(peft=None),
    neck=dict(
        _delete_=True, type='mmcluspro.PrimitiveAdapter', in_channels=64, hidden=256, norm=None,
        act='GELU'),
    head=dict(
        type='mmcluspro.PLIDHead', fusion='composition',
        loss_weights=dict(attr=0.01, obj=0.01),
        text=dict(
            type='mmcluspro.PLIDText', attn_dropout=0.0,
            prompt=dict(share_context=True, attr_dropout=0.0))))
