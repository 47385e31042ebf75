"""CLIP zero-shot: hard prompts, nothing learns. Tested by tools/test.py without a checkpoint."""
_base_ = dict(
    published=[
        '../_base_/models/three_path_vit-l14.py', '../_base_/datasets/{dataset}.py',
        '../_base_/schedules/test_only.py', '../_base_/default_runtime.py'],
    fashion=[
        '../_base_/models/three_path_fashion_features.py', '../_base_/datasets/fashion_features.py',
        '../_base_/schedules/test_only.py', '../_base_/default_runtime.py'],
    shapes=[
        '../_base_/models/three_path_tiny.py', '../_base_/datasets/{dataset}.py',
        '../_base_/schedules/test_only.py', '../_base_/default_runtime.py'])
model = dict(
    backbone=dict(peft=None),
    neck=None,
    head=dict(
        loss_weights=dict(attr=0, obj=0), fusion='composition',
        text=dict(prompt=dict(learn=(), names='tokens'))))
train_dataloader = None
_hard = dict(head=dict(text=dict(prompt=dict(attr_dropout=0.0))))
on = dict(
    published=dict(model=dict(backbone=dict(with_cp=False), **_hard)),
    shapes=dict(model=_hard),
    utzappos=dict(model=dict(head=dict(text=dict(readable='dots')))))
