"""The three-path baseline on fashion_clip with LoRA."""
_base_ = ['_base_/models/three_path_fashion_clip.py', '_base_/settings/fashion.py']
model = dict(space=_base_.space)
