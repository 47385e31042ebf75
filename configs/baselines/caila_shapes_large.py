"""CAILA: adapters of concepts in the layers of both towers, and their mixture."""
_base_ = [
    '../_base_/models/caila_tiny.py',
    '../_base_/datasets/shapes_large.py',
    '../_base_/schedules/shapes.py',
    '../_base_/default_runtime.py',
]
model = dict(space=_base_.space)
