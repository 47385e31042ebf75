"""Troika on fashion_clip. LoRA stands in for its adapters, which need open_clip's blocks."""
_base_ = 'three_path_fashion_clip.py'
model = dict(
    backbone=dict(out_tokens=True),
    neck=dict(stages=1, norm='BN', dropout=0.0, residual=False),
    head=dict(type='mmcluspro.TroikaHead', in_channels=256, fusion='logits'))
