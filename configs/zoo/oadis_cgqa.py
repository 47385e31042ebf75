"""OADis on stored features of ResNet-18 and word2vec (C-GQA)."""
_base_ = ['../_base_/models/oadis_resnet18.py', '../_base_/settings/c_gqa_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    neck=dict(hidden=1024, dropout=0.35),
    head=dict(in_channels=1024))
train_dataloader = dict(batch_size=256)
optim_wrapper = dict(optimizer=dict(lr=1e-4))
