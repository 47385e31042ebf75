"""A frozen CLIP and the composition path alone: what CoOp, CSP and most others start from.

Names of UT-Zappos are read as in the published code.
"""
_base_ = dict(
    published=[
        '../_base_/models/three_path_vit-l14.py', '../_base_/datasets/{dataset}.py',
        '../_base_/schedules/csp.py', '../_base_/default_runtime.py'],
    fashion=[
        '../_base_/models/three_path_fashion_features.py', '../_base_/datasets/fashion_features.py',
        '../_base_/schedules/fashion_features.py', '../_base_/default_runtime.py'],
    shapes=[
        '../_base_/models/three_path_tiny.py', '../_base_/datasets/{dataset}.py',
        '../_base_/schedules/shapes.py', '../_base_/default_runtime.py'])
model = dict(
    backbone=dict(peft=None),
    neck=None,
    head=dict(loss_weights=dict(attr=0, obj=0), fusion='composition'))
on = dict(
    published=dict(
        model=dict(backbone=dict(with_cp=False)), train_dataloader=dict(batch_size=64)),
    utzappos=dict(model=dict(head=dict(text=dict(readable='dots')))))
