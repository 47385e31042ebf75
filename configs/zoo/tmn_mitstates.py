"""TMN on stored features of ResNet-18 and GloVe (MIT-States)."""
_base_ = ['../_base_/models/tmn_resnet18.py', '../_base_/settings/mit_states_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    head=dict(text=dict(path='data/word_vectors/glove.6B.300d.txt')))
train_dataloader = dict(batch_size=256)
optim_wrapper = dict(
    optimizer=dict(lr=1e-4),
    paramwise_cfg=dict(custom_keys=dict(gater=dict(lr_mult=0.01))))
train_cfg = dict(max_epochs=100)
