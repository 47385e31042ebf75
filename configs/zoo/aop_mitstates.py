"""AttrAsOp on stored features of ResNet-18 and GloVe (MIT-States)."""
_base_ = ['../_base_/models/aop_resnet18.py', '../_base_/settings/mit_states_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    head=dict(aux_weight=1000.0))
train_dataloader = dict(batch_size=512)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(operators=dict(lr_mult=0.1))))
train_cfg = dict(max_epochs=1000)
