"""DFSP on stored features: decomposed texts are fused with the one feature of the image (t2i)."""
_base_ = ['../_base_/models/one_path_fashion_clip.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    head=dict(
        type='mmcluspro.DFSPHead',
        in_channels=256,
        direction='t2i',
        loss_weights=dict(attr=0.01, obj=0.01),
        text=dict(prompt=dict(share_context=True, attr_dropout=0.0))))
