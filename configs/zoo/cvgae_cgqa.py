"""CVGAE on stored features of ResNet-18 and word2vec (C-GQA)."""
_base_ = ['../_base_/models/cvgae_resnet18.py', '../_base_/settings/c_gqa_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    neck=dict(out_channels=800),
    head=dict(text=dict(out_dim=800, hidden_dim=1024, temperature=1 / 800)))
train_dataloader = dict(batch_size=64)
optim_wrapper = dict(optimizer=dict(weight_decay=0.0))
