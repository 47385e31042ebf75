"""MIT-States."""
_base_ = 'images_224.py'
space = dict(type='mmcluspro.MITStates', data_root='data/mit-states')
train_dataloader = dict(batch_size=64, dataset=space)
val_dataloader = dict(dataset=space)
test_dataloader = dict(dataset=space)
