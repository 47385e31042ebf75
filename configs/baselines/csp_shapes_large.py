"""CSP: attribute and object vectors learn, the context stays; composition path only."""
_base_ = [
    '../_base_/models/three_path_tiny.py',
    '../_base_/datasets/shapes_large.py',
    '../_base_/schedules/shapes.py',
    '../_base_/default_runtime.py',
]
model = dict(
    space=_base_.space,
    backbone=dict(peft=None),
    neck=None,
    head=dict(
        loss_weights=dict(attr=0, obj=0),
        fusion='composition',
        text=dict(prompt=dict(learn=('vocabulary', ), attr_dropout=0.0))))
