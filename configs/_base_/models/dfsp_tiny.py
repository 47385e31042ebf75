"""DFSP on the shipped tiny CLIP, without dropout."""
_base_ = 'three_path_tiny.py'
model = dict(
    backbone=dict(peft=None, out_tokens=True),
    neck=None,
    head=dict(
        type='mmcluspro.DFSPHead', fusion='composition', in_channels=64, direction='t2i',
        loss_weights=dict(attr=0.01, obj=0.01),
        text=dict(prompt=dict(share_context=True, attr_dropout=0.0))))
