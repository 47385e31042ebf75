"""Troika: adapters in the tower, and texts drawn towards the patches of each image."""
_base_ = [
    '../_base_/models/troika_tiny.py',
    '../_base_/datasets/shapes_large.py',
    '../_base_/schedules/shapes.py',
    '../_base_/default_runtime.py',
]
model = dict(space=_base_.space)
