"""CoOp: the context learns, the names stay hard; composition path only."""
_base_ = [
    '../_base_/models/three_path_vit-l14.py',
    '../_base_/datasets/mit_states.py',
    '../_base_/schedules/paper.py',
    '../_base_/default_runtime.py',
]
model = dict(
    space=_base_.space,
    backbone=dict(peft=None),
    neck=None,
    head=dict(
        loss_weights=dict(attr=0, obj=0),
        fusion='composition',
        text=dict(prompt=dict(
            learn=('context', ), names='tokens', share_context=True, attr_dropout=0.0))))
