"""MSCI: texts are drawn towards low, then towards high layers of the image tower."""
_base_ = ['../_base_/models/msci_tiny.py', '../_base_/settings/shapes.py']
model = dict(space=_base_.space)
