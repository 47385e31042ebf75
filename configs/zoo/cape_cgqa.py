"""CAPE on stored features of ResNet-18 and word2vec (C-GQA)."""
_base_ = ['../_base_/models/cape_resnet18.py', '../_base_/settings/c_gqa_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    head=dict(text=dict(temperature=0.01)))
train_dataloader = dict(batch_size=30)
train_cfg = dict(max_epochs=120)
