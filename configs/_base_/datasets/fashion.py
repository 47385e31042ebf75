"""Fashion (fashion-v1) at 112 px, from images; docs/fashion.md."""
_base_ = 'dataloaders.py'
family = 'photographs'
space = dict(type='mmcluspro.Fashion', data_root='data/fashion', split='fashion-v1')

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(112, 112), backend='pillow', interpolation='bicubic'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label']),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(112, 112), backend='pillow', interpolation='bicubic'),
    dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label']),
]

train_dataloader = dict(
    batch_size=128, num_workers=2, dataset=dict(**space, pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=128, num_workers=2, dataset=dict(**space, pipeline=test_pipeline))
test_dataloader = dict(
    batch_size=128, num_workers=2, dataset=dict(**space, pipeline=test_pipeline))
