"""PCVL: one context and the vocabulary learn; composition path only."""
_base_ = ['../_base_/models/one_path_vit-l14.py', '../_base_/settings/c_gqa_csp.py']
model = dict(space=_base_.space, head=dict(
    type='mmcluspro.PCVLHead',
    text=dict(prompt=dict(share_context=True, attr_dropout=0.3))))
train_dataloader = dict(batch_size=64)
optim_wrapper = dict(optimizer=dict(weight_decay=5e-5))
