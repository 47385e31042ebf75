"""SymNet on stored features of ResNet-18 and fastText (UT-Zappos)."""
_base_ = ['../_base_/models/symnet_resnet18.py', '../_base_/settings/ut_zappos_resnet18.py']
model = dict(
    space=_base_.space,
    backbone=dict(backbone=dict(features=_base_.features)),
    head=dict(text=dict(path='data/word_vectors/crawl-300d-2M.vec')))
train_dataloader = dict(batch_size=512)
train_cfg = dict(max_epochs=2000)
