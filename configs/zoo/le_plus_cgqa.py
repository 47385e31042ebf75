"""LE+ on stored features of ResNet-18 and GloVe (C-GQA)."""
_base_ = ['../_base_/models/le_plus_resnet18.py', '../_base_/settings/c_gqa_resnet18.py']
model = dict(space=_base_.space, backbone=dict(backbone=dict(features=_base_.features)))
train_dataloader = dict(batch_size=512)
train_cfg = dict(max_epochs=2000)
