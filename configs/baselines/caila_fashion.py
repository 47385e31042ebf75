"""CAILA on stored features: adapters in the text tower; PrimitiveAdapter for those of images."""
_base_ = ['../_base_/models/one_path_fashion_clip.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    neck=dict(_delete_=True, type='mmcluspro.PrimitiveAdapter', in_channels=256),
    head=dict(
        type='mmcluspro.CAILAHead',
        img_dropout=0.1,
        loss_weights=dict(attr=1.0, obj=1.0),
        text=dict(
            type='mmcluspro.CAILAText',
            prompt=dict(
                context='a photo of a', learn=(), names='tokens', attr_dropout=0.0))))
