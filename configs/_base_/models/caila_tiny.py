"""CAILA on the shipped tiny CLIP, without dropout."""
_base_ = 'three_path_tiny.py'
model = dict(
    backbone=dict(type='mmcluspro.CAILAVision', peft=None),
    neck=None,
    head=dict(
        type='mmcluspro.CAILAHead', fusion='composition', img_dropout=0.0,
        loss_weights=dict(attr=1.0, obj=1.0),
        text=dict(
            type='mmcluspro.CAILAText',
            prompt=dict(context='a photo of a', learn=(), names='tokens', attr_dropout=0.0))))
