"""dino_baseline on stored features, without augmentation (docs/features.md)."""
_base_ = 'dino_baseline.py'
features = f'data/features/{dataset}_dino'
model = dict(
    data_preprocessor=dict(type='mmcluspro.FeaturePreprocessor'),
    backbone=dict(backbone=dict(
        _delete_=True, type='mmcluspro.CachedFeatures', features=features,
        backbone=_base_.dino)))
stored = dict(features=features, check_images=False)
train_dataloader = dict(dataset=dict(**stored, pipeline=_base_.test_pipeline))
val_dataloader = dict(dataset=stored)
test_dataloader = dict(dataset=stored)
