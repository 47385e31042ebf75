"""ClusPro on stored features of the frozen tiny CLIP (docs/features.md)."""
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
            type='mmcluspro.CLIPVision', arch='tiny_clip', pretrained='tiny_clip')),
    head=dict(
        type='mmcluspro.ClusProHead',
        in_channels=64,
        bank=dict(num_prototypes=5, momentum=0.99,
                  assigner=dict(type='mmcluspro.LocalAwareOT', kappa=1.0)),
        loss_pcl=dict(type='mmcluspro.PCLLoss', temperature=0.1, loss_weight=0.2),
        loss_pdl=dict(type='mmcluspro.HSICLoss', loss_weight=0.5)))
train_dataloader = dict(dataset=dict(features=features, pipeline=_base_.test_pipeline))
val_dataloader = dict(dataset=dict(features=features))
test_dataloader = dict(dataset=dict(features=features))
custom_hooks = [
    dict(type='mmcluspro.CompositionHook'),
    dict(type='mmcluspro.EpochSeedHook'),
    dict(type='mmcluspro.PrototypeHook'),
]
