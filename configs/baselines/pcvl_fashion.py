"""PCVL: one context and the vocabulary learn; composition path only."""
_base_ = ['../_base_/models/one_path_fashion_clip.py', '../_base_/settings/fashion_features.py']
model = dict(space=_base_.space, head=dict(
    type='mmcluspro.PCVLHead',
    text=dict(prompt=dict(share_context=True, attr_dropout=0.0))))
