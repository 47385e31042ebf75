"""CDS-CZSL, a reconstruction: three paths and the specificity of attributes."""
_base_ = '_three_path.py'
model = dict(
    backbone=dict(peft=None),
    head=dict(
        type='mmcluspro.CDSHead', fusion='probability', loss_weights=dict(attr=1.0, obj=1.0),
        text=dict(prompt=dict(attr_dropout=0.0))))
on = dict(published=dict(model=dict(
    backbone=dict(with_cp=False), head=dict(text=dict(prompt=dict(attr_dropout=0.3))))))
