"""PLID: prompts read the descriptions of their pair, which also give their distribution."""
_base_ = ['../_base_/models/plid_tiny.py', '../_base_/settings/shapes_large.py']
model = dict(space=_base_.space)
