"""ClusPro on stored features of the frozen fashion_clip, see docs/fashion.md."""
_base_ = [
    '_base_/models/cluspro_fashion_clip.py',
    '_base_/datasets/fashion_features.py',
    '_base_/schedules/fashion_features.py',
    '_base_/default_runtime.py',
]
model = dict(
    space=_base_.space,
    data_preprocessor=dict(type='mmcluspro.FeaturePreprocessor'),
    backbone=dict(
        peft=None,
        backbone=dict(
            _delete_=True, type='mmcluspro.CachedFeatures', backbone=_base_.dinov2,
            features='data/features/fashion_dinov2_s')))
