"""ClusPro on stored features of frozen DINO and word2vec (Table 9).

As dino_cluspro_cgqa.py, without augmentation; see docs/features.md.
"""
_base_ = [
    '_base_/models/three_path_dino.py',
    '_base_/datasets/c_gqa.py',
    '_base_/schedules/paper.py',
    '_base_/default_runtime.py',
]
features = 'data/features/cgqa_dino'
model = dict(
    space=_base_.space,
    data_preprocessor=dict(type='mmcluspro.FeaturePreprocessor'),
    backbone=dict(backbone=dict(
        _delete_=True, type='mmcluspro.CachedFeatures', features=features,
        backbone=_base_.dino)),
    head=dict(
        type='mmcluspro.ClusProHead',
        in_channels=768,
        bank=dict(num_prototypes=5, momentum=0.99,
                  assigner=dict(type='mmcluspro.LocalAwareOT', kappa=1.0)),
        loss_pcl=dict(type='mmcluspro.PCLLoss', temperature=0.1, loss_weight=0.2),
        loss_pdl=dict(type='mmcluspro.HSICLoss', loss_weight=0.5)))
train_dataloader = dict(
    batch_size=128,
    dataset=dict(features=features, check_images=False, pipeline=_base_.test_pipeline))
val_dataloader = dict(dataset=dict(features=features, check_images=False))
test_dataloader = dict(dataset=dict(features=features, check_images=False))
custom_hooks = [
    dict(type='mmcluspro.CompositionHook'),
    dict(type='mmcluspro.EpochSeedHook'),
    dict(type='mmcluspro.PrototypeHook'),
]
