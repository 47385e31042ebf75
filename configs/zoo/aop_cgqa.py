"""AttrAsOp on stored features of ResNet-18 and GloVe (C-GQA)."""
_base_ = ['../_base_/models/aop_resnet18.py', '../_base_/settings/c_gqa_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    head=dict(aux_weight=1.0))
train_dataloader = dict(batch_size=128)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(operators=dict(lr_mult=0.1))))
train_cfg = dict(max_epochs=1000)
