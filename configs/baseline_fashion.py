"""The three-path baseline on fashion_clip with LoRA."""
_base_ = [
    '_base_/models/three_path_fashion_clip.py',
    '_base_/datasets/fashion.py',
    '_base_/schedules/fashion.py',
    '_base_/default_runtime.py',
]
