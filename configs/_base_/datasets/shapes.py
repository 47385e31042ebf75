"""ShapesCZSL (shapes-v2): drawn by the code, nothing to download."""
_base_ = 'dataloaders.py'
family = 'shapes'
space = dict(type='mmcluspro.ShapesCZSL', version='shapes-v2')

train_pipeline = [
    dict(type='RandomCrop', crop_size=48, padding=4, padding_mode='edge'),
    dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label']),
]
test_pipeline = [
    dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label']),
]

train_dataloader = dict(
    batch_size=64, num_workers=0, dataset=dict(**space, pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=256, num_workers=0, dataset=dict(**space, pipeline=test_pipeline))
test_dataloader = dict(
    batch_size=256, num_workers=0, dataset=dict(**space, pipeline=test_pipeline))
