"""SymNet on stored features of ResNet-18 and GloVe (MIT-States)."""
_base_ = ['../_base_/models/symnet_resnet18.py', '../_base_/settings/mit_states_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    head=dict(loss_weights=dict(obj=0.1), text=dict(path='data/word_vectors/glove.6B.300d.txt')))
train_dataloader = dict(batch_size=450)
train_cfg = dict(max_epochs=2000)
