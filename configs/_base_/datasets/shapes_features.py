"""ShapesCZSL (shapes-v2) as stored features of the frozen tiny CLIP."""
_base_ = 'shapes.py'
stored = dict(features='data/features/shapes_tiny_clip')
train_dataloader = dict(dataset=dict(**stored, pipeline=_base_.test_pipeline))
val_dataloader = dict(dataset=stored)
test_dataloader = dict(dataset=stored)
