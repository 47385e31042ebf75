"""The three-path baseline (Table 3, first row)."""
_base_ = [
    '_base_/models/three_path_vit-l14.py',
    '_base_/datasets/mitstates.py',
    '_base_/schedules/paper.py',
    '_base_/default_runtime.py',
]
