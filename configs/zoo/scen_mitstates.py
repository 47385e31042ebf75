"""SCEN on stored features of ResNet-18 and word2vec (MIT-States)."""
_base_ = ['../_base_/models/scen_resnet18.py', '../_base_/settings/mit_states_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    head=dict(text=dict(temperature=0.05)))
train_dataloader = dict(batch_size=128)
train_cfg = dict(max_epochs=150)
