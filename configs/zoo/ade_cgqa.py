"""ADE on images, frozen DINO ViT-B/16 and word2vec (C-GQA)."""
_base_ = [
    '../_base_/models/ade_dino.py',
    '../_base_/datasets/c_gqa.py',
    '../_base_/schedules/zoo.py',
    '../_base_/default_runtime.py',
]
model = dict(space=_base_.space)
train_dataloader = dict(batch_size=128)
train_cfg = dict(max_epochs=300)
