"""fashion_clip frozen on stored features, composition path only: zero-shot, CoOp and CSP."""
_base_ = 'three_path_fashion_clip.py'
model = dict(
    data_preprocessor=dict(type='mmcluspro.FeaturePreprocessor'),
    backbone=dict(
        peft=None,
        backbone=dict(
            _delete_=True,
            type='mmcluspro.CachedFeatures',
            features='data/features/fashion_dinov2_s',
            backbone=_base_.dinov2)),
    neck=None,
    head=dict(loss_weights=dict(attr=0, obj=0), fusion='composition'))
