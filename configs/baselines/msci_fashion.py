"""MSCI on fashion_clip: texts read the first and the last blocks of the image tower.

LoRA stands in for its adapters, which need open_clip's blocks.
"""
_base_ = ['../_base_/models/three_path_fashion_clip.py', '../_base_/settings/fashion.py']
model = dict(
    space=_base_.space,
    backbone=dict(out_tokens=True, out_layers=[0, 1, 2, -3, -2, -1]),
    neck=dict(stages=1, norm='BN', dropout=0.0, residual=False),
    head=dict(type='mmcluspro.MSCIHead', in_channels=256, fusion='logits', dropout=0.0))
