"""Troika: adapters in the tower, and texts drawn towards the patches of each image."""
_base_ = ['../_base_/models/troika_vit-l14.py', '../_base_/settings/ut_zappos_paper.py']
model = dict(space=_base_.space, head=dict(text=dict(readable='dots')))
optim_wrapper = dict(optimizer=dict(lr=5e-4, weight_decay=1e-5))
