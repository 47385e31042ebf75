"""DFSP: decomposed texts are fused with the tokens of the image (t2i; i2t and BiF by option)."""
_base_ = ['../_base_/models/dfsp_vit-l14.py', '../_base_/settings/ut_zappos_csp.py']
model = dict(space=_base_.space, head=dict(text=dict(readable='dots')))
train_dataloader = dict(batch_size=128)
optim_wrapper = dict(optimizer=dict(lr=5e-4))
param_scheduler = dict(type='StepLR', by_epoch=True, step_size=3, gamma=0.5)
