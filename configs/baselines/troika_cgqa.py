"""Troika: adapters in the tower, and texts drawn towards the patches of each image."""
_base_ = ['../_base_/models/troika_vit-l14.py', '../_base_/settings/c_gqa_paper.py']
model = dict(
    space=_base_.space,
    head=dict(
        with_cp=True,
        loss_weights=dict(attr=0.1, obj=0.1),
        text=dict(prompt=dict(attr_dropout=0.0))))
optim_wrapper = dict(optimizer=dict(lr=3.125e-6, weight_decay=1e-5))
