"""Your own images without augmentation, for the tiny CLIP."""
_base_ = 'images_224.py'
space = dict(type='mmcluspro.TableCZSL', data_root='photos', table='table.csv')
test_pipeline = [
    dict(type='mmcluspro.LoadPicture'),
    dict(type='mmcluspro.TowerPixels'),
    dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label']),
]
train_pipeline = test_pipeline
train_dataloader = dict(num_workers=0, dataset=dict(**space, pipeline=train_pipeline))
val_dataloader = dict(num_workers=0, dataset=dict(**space, pipeline=test_pipeline))
test_dataloader = dict(num_workers=0, dataset=dict(**space, pipeline=test_pipeline))
