"""CDS-CZSL on the shipped tiny CLIP, without dropout."""
_base_ = 'three_path_tiny.py'
model = dict(
    backbone=dict(peft=None),
    head=dict(
        type='mmcluspro.CDSHead', fusion='probability', in_channels=64,
        loss_weights=dict(attr=1.0, obj=1.0),
        text=dict(prompt=dict(attr_dropout=0.0))))
