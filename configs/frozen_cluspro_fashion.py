"""cluspro_fashion.py on stored features of the frozen fashion_clip, see docs/fashion.md."""
_base_ = 'cluspro_fashion.py'
features = 'data/features/fashion_dinov2_s'
model = dict(
    data_preprocessor=dict(type='mmcluspro.FeaturePreprocessor'),
    backbone=dict(
        peft=None,
        backbone=dict(
            _delete_=True, type='mmcluspro.CachedFeatures', features=features,
            backbone=_base_.dinov2)))
stored = dict(features=features, check_images=False)
train_dataloader = dict(num_workers=0, dataset=dict(**stored, pipeline=_base_.test_pipeline))
val_dataloader = dict(batch_size=512, num_workers=0, dataset=stored)
test_dataloader = dict(batch_size=512, num_workers=0, dataset=stored)
