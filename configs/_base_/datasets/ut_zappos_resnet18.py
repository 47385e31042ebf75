"""UT-Zappos as stored features of ResNet-18, without augmentation."""
_base_ = 'images_224.py'
space = dict(type='mmcluspro.UTZappos', data_root='data/ut-zap50k')
features = 'data/features/utzappos_resnet18'
stored = dict(**space, features=features, check_images=False)
train_dataloader = dict(dataset=dict(**stored, pipeline=_base_.test_pipeline))
val_dataloader = dict(dataset=stored)
test_dataloader = dict(dataset=stored)
