"""MSCI: texts are drawn towards low, then towards high layers of the image tower."""
_base_ = ['../_base_/models/msci_vit-l14.py', '../_base_/settings/ut_zappos_paper.py']
model = dict(
    space=_base_.space,
    backbone=dict(out_layers=[0, 1, 2, -3, -2, -1]),
    head=dict(low=3, high=3, text=dict(readable='dots')))
train_dataloader = dict(batch_size=48)
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=2.5e-4, weight_decay=1e-5))
