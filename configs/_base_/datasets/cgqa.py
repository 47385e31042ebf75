"""C-GQA."""
_base_ = 'images_224.py'
space = dict(type='mmcluspro.CGQA', data_root='data/cgqa')
train_dataloader = dict(batch_size=16, dataset=space)
val_dataloader = dict(dataset=space)
test_dataloader = dict(dataset=space)
