"""DFSP: decomposed texts are fused with the tokens of the image (t2i; i2t and BiF by option)."""
_base_ = ['../_base_/models/dfsp_vit-l14.py', '../_base_/settings/c_gqa_csp.py']
model = dict(space=_base_.space)
train_dataloader = dict(batch_size=256)
optim_wrapper = dict(accumulative_counts=1)
param_scheduler = dict(type='StepLR', by_epoch=True, step_size=3, gamma=0.5)
