"""ShapesCZSL (shapes-v2): drawn by the code, nothing to download."""
space = dict(type='mmcluspro.ShapesCZSL', version='shapes-v2')

train_pipeline = [
    dict(type='RandomCrop', crop_size=48, padding=4, padding_mode='edge'),
    dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label']),
]
test_pipeline = [
    dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label']),
]

train_dataloader = dict(
    batch_size=64,
    num_workers=0,
    dataset=dict(**space, phase='train', pipeline=train_pipeline),
    sampler=dict(type='DefaultSampler', shuffle=True))
val_dataloader = dict(
    batch_size=256,
    num_workers=0,
    dataset=dict(**space, phase='val', pipeline=test_pipeline),
    sampler=dict(type='DefaultSampler', shuffle=False))
test_dataloader = dict(
    batch_size=256,
    num_workers=0,
    dataset=dict(**space, phase='test', pipeline=test_pipeline),
    sampler=dict(type='DefaultSampler', shuffle=False))
