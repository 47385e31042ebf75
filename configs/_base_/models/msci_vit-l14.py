"""MSCI on CLIP ViT-L/14: texts read the first and the last blocks of the image tower."""
_base_ = 'three_path_vit-l14.py'
model = dict(
    backbone=dict(
        out_tokens=False,
        project_layers=True,
        out_layers=[0, 1, 2, 3, -4, -3, -2, -1],
        peft=dict(
            _delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1, dropout=0.1)),
    neck=dict(stages=1, norm='BN', dropout=0.5, residual=False),
    head=dict(
        type='mmcluspro.MSCIHead', in_channels=768, fusion='logits', low=4, high=4,
        dropout=0.1))
