"""MSCI: texts are drawn towards low, then towards high layers of the image tower."""
_base_ = [
    '../_base_/models/msci_tiny.py',
    '../_base_/datasets/shapes_large.py',
    '../_base_/schedules/shapes.py',
    '../_base_/default_runtime.py',
]
model = dict(space=_base_.space)
