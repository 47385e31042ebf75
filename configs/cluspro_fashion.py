"""ClusPro on fashion_clip with LoRA, with the paper's settings."""
_base_ = ['_base_/models/cluspro_fashion_clip.py', '_base_/settings/fashion.py']
model = dict(space=_base_.space)
