"""MSCI on the shipped tiny CLIP: texts read the first and the last blocks of the image tower."""
_base_ = 'three_path_tiny.py'
model = dict(
    backbone=dict(
        out_tokens=False,
        project_layers=True,
        out_layers=[0, 1, -2, -1],
        peft=dict(
            _delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1, dropout=0.0)),
    neck=dict(stages=1, norm='BN', dropout=0.0, residual=False),
    head=dict(
        type='mmcluspro.MSCIHead', in_channels=64, fusion='logits', low=2, high=2,
        dropout=0.0))
