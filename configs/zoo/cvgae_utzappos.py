"""CVGAE on stored features of ResNet-18 and word2vec (UT-Zappos)."""
_base_ = ['../_base_/models/cvgae_resnet18.py', '../_base_/settings/ut_zappos_resnet18.py']
model = dict(space=_base_.space, backbone=dict(backbone=dict(features=_base_.features)))
train_dataloader = dict(batch_size=64)
optim_wrapper = dict(optimizer=dict(weight_decay=0.0))
