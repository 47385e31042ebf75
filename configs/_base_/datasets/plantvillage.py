"""PlantVillage (plantvillage-v1), stored features of DINOv2-S at 224 px; docs/real_datasets.md."""
_base_ = 'images_224.py'
family = 'photographs'
space = dict(
    type='mmcluspro.PlantVillage', data_root='data/plantvillage', split='plantvillage-v1')
stored = dict(**space, features='data/features/plantvillage_dinov2_s', check_images=False)
train_dataloader = dict(
    batch_size=128, num_workers=0, dataset=dict(**stored, pipeline=_base_.test_pipeline))
val_dataloader = dict(batch_size=512, num_workers=0, dataset=stored)
test_dataloader = dict(batch_size=512, num_workers=0, dataset=stored)
model = dict(
    backbone=dict(backbone=dict(features=stored['features'])),
    head=dict(text=dict(readable=dict(_delete_=True))))
