"""TOMCAT on CLIP ViT-L/14: adapters in the tower, one context and the vocabulary learn."""
_base_ = 'three_path_vit-l14.py'
model = dict(
    backbone=dict(
        with_cp=False,
        peft=dict(
            _delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1, dropout=0.1)),
    neck=None,
    head=dict(
        type='mmcluspro.TOMCATHead',
        loss_weights=dict(attr=0, obj=0),
        fusion='composition',
        text=dict(prompt=dict(share_context=True, attr_dropout=0.3))))
