"""OADis on stored features of ResNet-18 and word2vec (MIT-States)."""
_base_ = ['../_base_/models/oadis_resnet18.py', '../_base_/settings/mit_states_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    neck=dict(hidden=2048, dropout=0.3),
    head=dict(in_channels=2048, weights=dict(both=0.05)))
train_dataloader = dict(batch_size=256)
optim_wrapper = dict(optimizer=dict(lr=3e-4))
train_cfg = dict(max_epochs=100)
