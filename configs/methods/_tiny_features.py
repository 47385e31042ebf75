"""Stored features of the tiny CLIP in place of drawings."""
features = 'data/features/shapes_tiny_clip'
model = dict(
    data_preprocessor=dict(type='mmcluspro.FeaturePreprocessor'),
    backbone=dict(
        _delete_=True,
        type='mmcluspro.CachedFeatures',
        features=features,
        backbone=dict(type='mmcluspro.CLIPVision', arch='tiny_clip', pretrained='tiny_clip')))
train_dataloader = dict(dataset=dict(features=features, pipeline=_base_.test_pipeline))
val_dataloader = dict(dataset=dict(features=features))
test_dataloader = dict(dataset=dict(features=features))
