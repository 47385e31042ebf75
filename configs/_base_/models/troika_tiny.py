"""Troika on the shipped tiny CLIP, without dropout: chosen on validation, see docs/baselines.md."""
_base_ = 'three_path_tiny.py'
model = dict(
    backbone=dict(
        out_tokens=True,
        peft=dict(_delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1, dropout=0.0)),
    neck=dict(stages=1, norm='BN', dropout=0.0, residual=False),
    head=dict(type='mmcluspro.TroikaHead', in_channels=64, fusion='logits'))
