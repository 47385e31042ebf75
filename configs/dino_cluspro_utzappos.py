"""ClusPro on frozen DINO and word2vec (Table 9), from images."""
_base_ = ['_base_/models/cluspro_dino.py', '_base_/settings/ut_zappos_paper.py']
model = dict(space=_base_.space)
train_dataloader = dict(batch_size=128)  # as ADE; the paper does not say
