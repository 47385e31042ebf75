"""CVGAE on stored features of ResNet-18 and word2vec (MIT-States)."""
_base_ = ['../_base_/models/cvgae_resnet18.py', '../_base_/settings/mit_states_resnet18.py']
model = dict(space=_base_.space, backbone=dict(backbone=dict(features=_base_.features)))
train_dataloader = dict(batch_size=64)
optim_wrapper = dict(optimizer=dict(weight_decay=0.0))
