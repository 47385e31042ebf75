"""The three-path baseline on stored features of the frozen tiny CLIP (docs/features.md)."""
_base_ = [
    '_base_/models/three_path_tiny.py',
    '_base_/datasets/shapes.py',
    '_base_/schedules/shapes.py',
    '_base_/default_runtime.py',
]
features = 'data/features/shapes_tiny_clip'
model = dict(
    space=_base_.space,
    data_preprocessor=dict(type='mmcluspro.FeaturePreprocessor'),
    backbone=dict(
        _delete_=True,
        type='mmcluspro.CachedFeatures',
        features=features,
        backbone=dict(
            type='mmcluspro.CLIPVision', arch='tiny_clip', pretrained='tiny_clip')))
train_dataloader = dict(dataset=dict(features=features, pipeline=_base_.test_pipeline))
val_dataloader = dict(dataset=dict(features=features))
test_dataloader = dict(dataset=dict(features=features))
