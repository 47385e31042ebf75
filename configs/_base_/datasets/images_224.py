"""Image files at the size of the image tower: the field's transforms and the dataloaders.

The files that build on this one say which images: mit_states.py, ut_zappos.py, own_data.py, …
"""
_base_ = 'dataloaders.py'
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='mmcluspro.TowerPixels'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='NumpyToPIL', to_rgb=True),
    dict(type='torchvision/RandomPerspective'),
    dict(type='torchvision/RandomRotation', degrees=5),
    dict(type='PILToNumpy', to_bgr=True),
    dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label']),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='mmcluspro.TowerPixels'),
    dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label']),
]

train_dataloader = dict(
    batch_size=64, num_workers=8, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=64, num_workers=8, dataset=dict(pipeline=test_pipeline))
test_dataloader = dict(
    batch_size=64, num_workers=8, dataset=dict(pipeline=test_pipeline))
