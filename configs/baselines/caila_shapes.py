"""CAILA: adapters of concepts in the layers of both towers, and their mixture."""
_base_ = ['../_base_/models/caila_tiny.py', '../_base_/settings/shapes.py']
model = dict(space=_base_.space)
