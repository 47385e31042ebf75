"""ShapesCZSL (shapes-large-v2): drawn by the code, nothing to download."""
_base_ = 'shapes.py'
family = 'shapes'
space = dict(type='mmcluspro.ShapesCZSL', version='shapes-large-v2')
train_dataloader = dict(dataset=space)
val_dataloader = dict(dataset=space)
test_dataloader = dict(dataset=space)
