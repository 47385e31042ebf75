"""The three-path baseline (Table 3, first row) on Shapes."""
_base_ = [
    '_base_/models/three_path_tiny.py',
    '_base_/datasets/shapes_large.py',
    '_base_/schedules/shapes.py',
    '_base_/default_runtime.py',
]
