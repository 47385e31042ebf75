"""The three-path baseline on stored features of frozen DINO and word2vec (Table 9).

As dino_baseline_utzappos.py, without augmentation; see docs/features.md.
"""
_base_ = [
    '_base_/models/three_path_dino.py',
    '_base_/datasets/ut_zappos.py',
    '_base_/schedules/paper.py',
    '_base_/default_runtime.py',
]
features = 'data/features/utzappos_dino'
model = dict(
    space=_base_.space,
    data_preprocessor=dict(type='mmcluspro.FeaturePreprocessor'),
    backbone=dict(backbone=dict(
        _delete_=True, type='mmcluspro.CachedFeatures', features=features,
        backbone=_base_.dino)))
train_dataloader = dict(
    batch_size=128,
    dataset=dict(features=features, check_images=False, pipeline=_base_.test_pipeline))
val_dataloader = dict(dataset=dict(features=features, check_images=False))
test_dataloader = dict(dataset=dict(features=features, check_images=False))
