"""PCVL: one context and the vocabulary learn; composition path only."""
_base_ = ['../_base_/models/one_path_vit-l14.py', '../_base_/settings/ut_zappos_csp.py']
model = dict(space=_base_.space, head=dict(
    type='mmcluspro.PCVLHead',
    text=dict(readable='dots', prompt=dict(share_context=True, attr_dropout=0.2))))
train_dataloader = dict(batch_size=64)
optim_wrapper = dict(optimizer=dict(lr=5e-4))
