"""GIPCOL: the vocabulary comes from convolutions on the graph of the labels."""
_base_ = ['../_base_/models/gipcol_tiny.py', '../_base_/settings/shapes_large.py']
model = dict(space=_base_.space)
