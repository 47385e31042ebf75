"""UT-Zappos."""
_base_ = 'images_224.py'
space = dict(type='mmcluspro.UTZappos', data_root='data/ut-zap50k')
train_dataloader = dict(batch_size=128, dataset=space)
val_dataloader = dict(dataset=space)
test_dataloader = dict(dataset=space)
