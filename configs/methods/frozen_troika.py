"""Troika on stored tokens of the frozen fashion_clip.

Each step draws 407 texts towards the patches of 128 images, so bfloat16 is on.
"""
datasets = ('fashion', )
_base_ = 'frozen_baseline.py'
features = 'data/features/fashion_dinov2_s_tokens'
model = dict(
    backbone=dict(out_tokens=True, backbone=dict(features=features)),
    neck=dict(stages=1, norm='BN', dropout=0.0, residual=False),
    head=dict(type='mmcluspro.TroikaHead', fusion='logits'))
train_dataloader = dict(dataset=dict(features=features))
val_dataloader = dict(dataset=dict(features=features))
test_dataloader = dict(dataset=dict(features=features))
optim_wrapper = dict(type='mmcluspro.BFloat16OptimWrapper')
