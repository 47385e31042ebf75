"""TMN on stored features of ResNet-18 and word2vec (UT-Zappos)."""
_base_ = ['../_base_/models/tmn_resnet18.py', '../_base_/settings/ut_zappos_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    head=dict(width=300, text=dict(learn_vectors=False)))
train_dataloader = dict(batch_size=256)
optim_wrapper = dict(
    optimizer=dict(lr=1e-4),
    paramwise_cfg=dict(custom_keys=dict(gater=dict(lr_mult=0.01))))
train_cfg = dict(max_epochs=100)
