"""DFSP: decomposed texts are fused with the tokens of the image (t2i; i2t and BiF by option)."""
_base_ = ['../_base_/models/dfsp_tiny.py', '../_base_/settings/shapes_large.py']
model = dict(space=_base_.space)
