"""ClusPro on Shapes, with the paper's settings."""
_base_ = [
    '_base_/models/three_path_tiny.py',
    '_base_/models/cluspro_head.py',
    '_base_/datasets/shapes.py',
    '_base_/schedules/shapes.py',
    '_base_/default_runtime.py',
]
model = dict(head=_base_.cluspro_head)
