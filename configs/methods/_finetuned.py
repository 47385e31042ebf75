"""ResNet-18 that trains, from images, in place of its stored features."""
model = dict(
    data_preprocessor=dict(type='ClsDataPreprocessor'),
    backbone=dict(frozen=False, backbone=dict(_delete_=True, **_base_.resnet18)))
stored = dict(features=None, check_images=True)
train_dataloader = dict(dataset=dict(**stored, pipeline=_base_.train_pipeline))
val_dataloader = dict(dataset=stored)
test_dataloader = dict(dataset=stored)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=0.1))))
