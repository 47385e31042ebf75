"""SCEN on stored features of ResNet-18 and word2vec (C-GQA)."""
_base_ = ['../_base_/models/scen_resnet18.py', '../_base_/settings/c_gqa_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    head=dict(aux_weight=0.5, contrast_weight=7.8, margin=0.4, text=dict(temperature=0.01)))
train_dataloader = dict(batch_size=128)
