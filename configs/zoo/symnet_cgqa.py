"""SymNet on stored features of ResNet-18 and GloVe (C-GQA)."""
_base_ = ['../_base_/models/symnet_resnet18.py', '../_base_/settings/c_gqa_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    head=dict(text=dict(path='data/word_vectors/glove.6B.300d.txt')))
train_dataloader = dict(batch_size=512)
train_cfg = dict(max_epochs=2000)
