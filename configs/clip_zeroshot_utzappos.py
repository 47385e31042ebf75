"""CLIP zero-shot: hard prompts, nothing learns. Tested by tools/test.py without a checkpoint."""
_base_ = [
    '_base_/models/three_path_vit-l14.py',
    '_base_/datasets/ut_zappos.py',
    '_base_/schedules/paper.py',
    '_base_/default_runtime.py',
]
model = dict(
    space=_base_.space,
    backbone=dict(peft=None),
    neck=None,
    head=dict(
        loss_weights=dict(attr=0, obj=0),
        fusion='composition',
        text=dict(prompt=dict(learn=(), names='tokens', attr_dropout=0.0))))
train_cfg = None
train_dataloader = None
optim_wrapper = None
param_scheduler = None
