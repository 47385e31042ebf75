"""The three-path baseline (Table 3, first row) on Shapes."""
_base_ = ['_base_/models/three_path_tiny.py', '_base_/settings/shapes.py']
model = dict(space=_base_.space)
