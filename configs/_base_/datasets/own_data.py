"""Your own images: a table or folders, see docs/own_data.md."""
_base_ = 'images_224.py'
space = dict(type='mmcluspro.TableCZSL', data_root='photos', table='table.csv')
train_dataloader = dict(dataset=space)
val_dataloader = dict(dataset=space)
test_dataloader = dict(dataset=space)
