"""Softmax regressions."""
datasets = ('photographs', 'shapes')
_base_ = '_words.py'
model = dict(
    neck=None,
    head=dict(
        type='mmcluspro.RegressionHead',
        text=dict(type='mmcluspro.WordTableText', learn_vectors=False)))
train_cfg = dict(_delete_=True, type='mmcluspro.FitLoop')
