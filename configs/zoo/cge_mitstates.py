"""CGE on stored features of ResNet-18 and word2vec (MIT-States)."""
_base_ = ['../_base_/models/cge_resnet18.py', '../_base_/settings/mit_states_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    neck=dict(out_channels=512),
    head=dict(text=dict(out_dim=512)))
train_dataloader = dict(batch_size=128)
