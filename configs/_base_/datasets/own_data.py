"""Your own images: a table or folders, see docs/own_data.md."""
_base_ = 'images_224.py'
space = dict(type='mmcluspro.TableCZSL', data_root='photos', table='table.csv')
# Reads every format that prediction reads, and puts transparent pictures on white.
load = dict(type='mmcluspro.LoadPicture')
train_pipeline = [load, *_base_.train_pipeline[1:]]
test_pipeline = [load, *_base_.test_pipeline[1:]]
train_dataloader = dict(dataset=dict(**space, pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(**space, pipeline=test_pipeline))
test_dataloader = dict(dataset=dict(**space, pipeline=test_pipeline))
