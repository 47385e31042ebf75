"""Fashion (fashion-v2) as stored features of the frozen DINOv2-S at 112 px; docs/fashion.md."""
_base_ = 'fashion.py'
family = 'photographs'
space = dict(type='mmcluspro.Fashion', data_root='data/fashion', split='fashion-v2')
stored = dict(**space, features='data/features/fashion_v2_dinov2_s', check_images=False)
train_dataloader = dict(num_workers=0, dataset=dict(**stored, pipeline=_base_.test_pipeline))
val_dataloader = dict(batch_size=512, num_workers=0, dataset=stored)
test_dataloader = dict(batch_size=512, num_workers=0, dataset=stored)
model = dict(
    backbone=dict(backbone=dict(features=stored['features'])),
    head=dict(text=dict(readable=dict(Face_Moisturisers='face moisturizers'))))  # of GloVe
