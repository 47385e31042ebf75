"""TOMCAT on the shipped tiny CLIP: adapters in the tower, without dropout."""
_base_ = 'one_path_tiny.py'
model = dict(
    backbone=dict(peft=dict(
        _delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1, dropout=0.0)),
    head=dict(
        type='mmcluspro.TOMCATHead',
        text=dict(prompt=dict(share_context=True, attr_dropout=0.0))))
