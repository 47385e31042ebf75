"""CAILA on CLIP ViT-L/14: adapters of concepts in the layers of both towers."""
_base_ = 'three_path_vit-l14.py'
model = dict(
    backbone=dict(type='mmcluspro.CAILAVision', peft=None, with_cp=True),
    neck=None,
    head=dict(
        type='mmcluspro.CAILAHead', fusion='composition',
        loss_weights=dict(attr=1.0, obj=1.0),
        text=dict(
            type='mmcluspro.CAILAText', with_cp=True,
            prompt=dict(context='a photo of a', learn=(), names='tokens', attr_dropout=0.0))))
