"""PLID: prompts read the descriptions of their pair, which also give their distribution."""
_base_ = ['../_base_/models/plid_vit-l14.py', '../_base_/settings/mit_states_csp.py']
model = dict(
    space=_base_.space,
    head=dict(loss_weights=dict(attr=0.1, obj=0.1), text=dict(attn_dropout=0.5)))
train_dataloader = dict(batch_size=64)
optim_wrapper = dict(optimizer=dict(weight_decay=2e-5))
train_cfg = dict(max_epochs=50)
param_scheduler = dict(type='StepLR', by_epoch=True, step_size=10, gamma=0.5)
