"""ClusPro on your own images with CLIP ViT-L/14: set `data`, see docs/own_data.md."""
_base_ = [
    '_base_/models/cluspro_vit-l14.py',
    '_base_/datasets/own_data.py',
    '_base_/schedules/paper.py',
    '_base_/default_runtime.py',
]
model = dict(space=_base_.space)
