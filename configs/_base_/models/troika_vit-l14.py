"""Troika on CLIP ViT-L/14: adapters in the tower, texts drawn towards the patches of each image."""
_base_ = 'three_path_vit-l14.py'
model = dict(
    backbone=dict(
        out_tokens=True,
        peft=dict(_delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1, dropout=0.1)),
    neck=dict(stages=1, norm='BN', dropout=0.5, residual=False),
    head=dict(type='mmcluspro.TroikaHead', in_channels=768, fusion='logits'))
