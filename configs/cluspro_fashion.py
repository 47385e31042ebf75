"""ClusPro on fashion_clip with LoRA, with the paper's settings."""
_base_ = [
    '_base_/models/three_path_fashion_clip.py',
    '_base_/models/cluspro_head.py',
    '_base_/datasets/fashion.py',
    '_base_/schedules/fashion.py',
    '_base_/default_runtime.py',
]
model = dict(head=_base_.cluspro_head)
