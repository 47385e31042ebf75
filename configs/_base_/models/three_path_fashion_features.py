"""The three-path baseline on stored features of the frozen fashion_clip."""
_base_ = 'three_path_fashion_clip.py'
model = dict(
    data_preprocessor=dict(type='mmcluspro.FeaturePreprocessor'),
    backbone=dict(
        peft=None,
        backbone=dict(
            _delete_=True, type='mmcluspro.CachedFeatures', backbone=_base_.dinov2,
            features='data/features/fashion_dinov2_s')))
