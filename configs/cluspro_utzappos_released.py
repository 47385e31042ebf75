"""ClusPro with the settings of the released code. It trains with mixed precision: add --amp."""
_base_ = ['_base_/models/cluspro_released_vit-l14.py', '_base_/settings/ut_zappos_paper.py']
model = dict(space=_base_.space, head=dict(text=dict(readable='dots')))
optim_wrapper = dict(optimizer=dict(lr=5e-4, weight_decay=1e-5))
# StepLR(5, 0.5), stepped twice at the end of each epoch.
param_scheduler = dict(
    _delete_=True, type='MultiStepLR', by_epoch=True, milestones=[3, 5, 8, 10, 13], gamma=0.5)
