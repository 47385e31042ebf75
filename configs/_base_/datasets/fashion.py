"""Fashion (fashion-v1) at 112 px, from images; docs/fashion.md."""
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
    batch_size=128,
    num_workers=2,
    dataset=dict(**space, phase='train', pipeline=train_pipeline),
    sampler=dict(type='DefaultSampler', shuffle=True))
val_dataloader = dict(
    batch_size=128,
    num_workers=2,
    dataset=dict(**space, phase='val', pipeline=test_pipeline),
    sampler=dict(type='DefaultSampler', shuffle=False))
test_dataloader = dict(
    batch_size=128,
    num_workers=2,
    dataset=dict(**space, phase='test', pipeline=test_pipeline),
    sampler=dict(type='DefaultSampler', shuffle=False))
