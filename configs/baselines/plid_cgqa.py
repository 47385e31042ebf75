"""PLID: prompts read the descriptions of their pair, which also give their distribution."""
_base_ = ['../_base_/models/plid_vit-l14.py', '../_base_/settings/c_gqa_csp.py']
model = dict(
    space=_base_.space,
    head=dict(
        loss_weights=dict(attr=0.01, obj=0.01),
        smoothing=0.01, group_objects=True,
        text=dict(attn_dropout=0.1)))
train_dataloader = dict(batch_size=64)
optim_wrapper = dict(optimizer=dict(lr=1e-5))
param_scheduler = dict(type='StepLR', by_epoch=True, step_size=4, gamma=0.5)
