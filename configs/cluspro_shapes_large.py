"""ClusPro on Shapes, with the paper's settings."""
_base_ = ['_base_/models/cluspro_tiny.py', '_base_/settings/shapes_large.py']
model = dict(space=_base_.space)
