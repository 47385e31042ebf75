"""CDS-CZSL, a reconstruction: three paths and the specificity of attributes."""
_base_ = ['../_base_/models/one_path_fashion_clip.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    neck=dict(_delete_=True, type='mmcluspro.PrimitiveAdapter', in_channels=256),
    head=dict(
        type='mmcluspro.CDSHead',
        in_channels=256,
        fusion='probability',
        loss_weights=dict(attr=1.0, obj=1.0),
        text=dict(prompt=dict(attr_dropout=0.0))))
