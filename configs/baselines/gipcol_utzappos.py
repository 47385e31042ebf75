"""GIPCOL: the vocabulary comes from convolutions on the graph of the labels."""
_base_ = ['../_base_/models/gipcol_vit-l14.py', '../_base_/settings/ut_zappos_csp.py']
model = dict(
    space=_base_.space,
    head=dict(text=dict(readable='dots', prompt=dict(attr_dropout=0.2))))
train_dataloader = dict(batch_size=64)
# The convolutions have a rate of 5e-5 and a decay of 5e-5 of their own.
optim_wrapper = dict(
    optimizer=dict(lr=5e-4),
    paramwise_cfg=dict(custom_keys={'convolutions': dict(lr_mult=0.1, decay_mult=5.0)}),
    accumulative_counts=1)
train_cfg = dict(max_epochs=10)
