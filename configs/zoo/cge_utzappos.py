"""CGE on stored features of ResNet-18 and word2vec (UT-Zappos)."""
_base_ = ['../_base_/models/cge_resnet18.py', '../_base_/settings/ut_zappos_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    head=dict(text=dict(out_dim=300)))
train_dataloader = dict(batch_size=128)
