"""Stored features of ResNet-18, without augmentation, in place of images."""
features = f'data/features/{dataset}_resnet18'
stored = dict(**_base_.space, features=features, check_images=False)
model = dict(backbone=dict(backbone=dict(features=features)))
train_dataloader = dict(batch_size=64, dataset=dict(**stored, pipeline=_base_.test_pipeline))
val_dataloader = dict(dataset=stored)
test_dataloader = dict(dataset=stored)
