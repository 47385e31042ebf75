"""Grocery (grocery-v1), stored features of the frozen DINOv2-S at 224 px; docs/real_datasets.md."""
_base_ = 'images_224.py'
family = 'photographs'
space = dict(type='mmcluspro.Grocery', data_root='data/grocery', split='grocery-v1')
stored = dict(**space, features='data/features/grocery_dinov2_s', check_images=False)
train_dataloader = dict(
    batch_size=128, num_workers=0, dataset=dict(**stored, pipeline=_base_.test_pipeline))
val_dataloader = dict(batch_size=512, num_workers=0, dataset=stored)
test_dataloader = dict(batch_size=512, num_workers=0, dataset=stored)
# Words that GloVe lacks.
model = dict(
    backbone=dict(backbone=dict(features=stored['features'])),
    head=dict(text=dict(readable=dict(
        _delete_=True, alpro='soy company', oatly='oat company', yoggi='yoghurt brand',
        blueberry_soyghurt='blueberry soy yoghurt', vanilla_soyghurt='vanilla soy yoghurt',
        natural_oatghurt='natural oat yoghurt'))))
