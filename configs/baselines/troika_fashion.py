"""Troika on fashion_clip: texts drawn towards the patches of each image.

LoRA stands in for its adapters, which need open_clip's blocks.
"""
_base_ = ['../_base_/models/three_path_fashion_clip.py', '../_base_/settings/fashion.py']
model = dict(
    space=_base_.space,
    backbone=dict(out_tokens=True),
    neck=dict(stages=1, norm='BN', dropout=0.0, residual=False),
    head=dict(type='mmcluspro.TroikaHead', in_channels=256, fusion='logits'))
