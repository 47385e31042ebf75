"""ClusPro on your own images with CLIP ViT-L/14: set `data`, see docs/own_data.md."""
_base_ = [
    '_base_/models/three_path_vit-l14.py',
    '_base_/models/cluspro_head.py',
    '_base_/datasets/own_data.py',
    '_base_/schedules/paper.py',
    '_base_/default_runtime.py',
]
model = dict(head=_base_.cluspro_head)
