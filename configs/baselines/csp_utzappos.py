"""CSP: attribute and object vectors learn, the context stays; composition path only.

Rate and dropout are those of the command for UT-Zappos in CSP's README (mixed vocabulary).
"""
_base_ = ['../_base_/models/one_path_vit-l14.py', '../_base_/settings/ut_zappos_csp.py']
model = dict(space=_base_.space, head=dict(text=dict(
    readable='dots', prompt=dict(learn=('vocabulary', ), attr_dropout=0.2))))
train_dataloader = dict(batch_size=64)
optim_wrapper = dict(optimizer=dict(lr=5e-4))
