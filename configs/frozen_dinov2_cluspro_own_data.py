"""ClusPro on your own photographs, as stored features of frozen DINOv2 and word vectors.

Fits a CPU: `mmcluspro train photos/ --weights dinov2_vits14_pretrain.pth --words glove.6B.300d.txt`
writes a config that builds on this one; see docs/real_photos.md.
"""
_base_ = [
    '_base_/models/three_path_dinov2.py',
    '_base_/models/cluspro_head.py',
    '_base_/datasets/own_data.py',
    '_base_/schedules/fashion_features.py',
    '_base_/default_runtime.py',
]
features = 'data/features/photos_dinov2'
model = dict(
    backbone=dict(backbone=dict(features=features)),
    # The names of the folders; the base has the words of Fashion's.
    head=dict(**_base_.cluspro_head, text=dict(readable=None, keep_words=20000)))
stored = dict(features=features, check_images=False)
train_dataloader = dict(
    num_workers=0, dataset=dict(**stored, pipeline=_base_.test_pipeline))
val_dataloader = dict(batch_size=512, num_workers=0, dataset=stored)
test_dataloader = dict(batch_size=512, num_workers=0, dataset=stored)
# Small data: the best epoch is chosen on validation.
train_cfg = dict(max_epochs=40, val_interval=1)
