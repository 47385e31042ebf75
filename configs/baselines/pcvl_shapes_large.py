"""PCVL: one context and the vocabulary learn; composition path only."""
_base_ = ['../_base_/models/one_path_tiny.py', '../_base_/settings/shapes_large.py']
model = dict(space=_base_.space, head=dict(
    type='mmcluspro.PCVLHead',
    text=dict(prompt=dict(share_context=True, attr_dropout=0.0))))
