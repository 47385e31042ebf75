"""ClusPro with the settings of the released code. It trains with mixed precision: add --amp."""
_base_ = ['_base_/models/cluspro_released_vit-l14.py', '_base_/settings/c_gqa_paper.py']
model = dict(
    space=_base_.space,
    head=dict(loss_weights=dict(attr=0.1, obj=0.1), text=dict(prompt=dict(attr_dropout=0.0))))
optim_wrapper = dict(optimizer=dict(lr=3.125e-6, weight_decay=1e-5))
# StepLR(5, 0.5), stepped twice at the end of each epoch.
param_scheduler = dict(
    _delete_=True, type='MultiStepLR', by_epoch=True, milestones=[3, 5, 8, 10, 13], gamma=0.5)
