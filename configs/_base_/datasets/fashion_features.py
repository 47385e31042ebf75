"""Fashion (fashion-v1) as stored features of the frozen DINOv2-S at 112 px; needs no images."""
_base_ = 'fashion.py'
stored = dict(features='data/features/fashion_dinov2_s', check_images=False)
train_dataloader = dict(
    batch_size=128, num_workers=0, dataset=dict(**stored, pipeline=_base_.test_pipeline))
val_dataloader = dict(batch_size=512, num_workers=0, dataset=stored)
test_dataloader = dict(batch_size=512, num_workers=0, dataset=stored)
