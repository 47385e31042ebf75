"""Troika: adapters in the tower, and texts drawn towards the patches of each image."""
_base_ = [
    '../_base_/models/three_path_vit-l14.py',
    '../_base_/datasets/c_gqa.py',
    '../_base_/schedules/paper.py',
    '../_base_/default_runtime.py',
]
model = dict(
    space=_base_.space,
    backbone=dict(
        out_tokens=True,
        peft=dict(_delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1, dropout=0.1)),
    neck=dict(stages=1, norm='BN', dropout=0.5, residual=False),
    head=dict(
        type='mmcluspro.TroikaHead',
        in_channels=768,
        fusion='logits',
        with_cp=True,
        loss_weights=dict(attr=0.1, obj=0.1),
        text=dict(prompt=dict(attr_dropout=0.0))))
optim_wrapper = dict(optimizer=dict(lr=3.125e-6, weight_decay=1e-5))
