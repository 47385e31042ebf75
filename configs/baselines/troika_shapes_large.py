"""Troika: adapters in the tower, and texts drawn towards the patches of each image."""
_base_ = [
    '../_base_/models/three_path_tiny.py',
    '../_base_/datasets/shapes_large.py',
    '../_base_/schedules/shapes.py',
    '../_base_/default_runtime.py',
]
# Without dropout: chosen on validation, see docs/baselines.md.
model = dict(
    space=_base_.space,
    backbone=dict(
        out_tokens=True,
        peft=dict(_delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1, dropout=0.0)),
    neck=dict(stages=1, norm='BN', dropout=0.0, residual=False),
    head=dict(type='mmcluspro.TroikaHead', in_channels=64, fusion='logits'))
