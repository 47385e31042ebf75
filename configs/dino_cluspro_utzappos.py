"""ClusPro on frozen DINO and word2vec (Table 9), from images."""
_base_ = [
    '_base_/models/cluspro_dino.py',
    '_base_/datasets/ut_zappos.py',
    '_base_/schedules/paper.py',
    '_base_/default_runtime.py',
]
model = dict(space=_base_.space)
train_dataloader = dict(batch_size=128)  # as ADE; the paper does not say
