"""ClusPro with the settings of the released code. It trains with mixed precision: add --amp."""
_base_ = ['_base_/models/cluspro_released_vit-l14.py', '_base_/settings/mit_states_paper.py']
model = dict(space=_base_.space)
optim_wrapper = dict(optimizer=dict(lr=1e-4, weight_decay=1e-5))
train_cfg = dict(max_epochs=10)
# StepLR(5, 0.5), stepped twice at the end of each epoch.
param_scheduler = dict(
    _delete_=True, type='MultiStepLR', by_epoch=True, milestones=[3, 5, 8], gamma=0.5)
