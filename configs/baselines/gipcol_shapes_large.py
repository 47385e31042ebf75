"""GIPCOL: the vocabulary comes from convolutions on the graph of the labels."""
_base_ = [
    '../_base_/models/gipcol_tiny.py',
    '../_base_/datasets/shapes_large.py',
    '../_base_/schedules/shapes.py',
    '../_base_/default_runtime.py',
]
model = dict(space=_base_.space)
