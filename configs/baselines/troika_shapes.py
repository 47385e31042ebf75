"""Troika: adapters in the tower, and texts drawn towards the patches of each image."""
_base_ = ['../_base_/models/troika_tiny.py', '../_base_/settings/shapes.py']
model = dict(space=_base_.space)
