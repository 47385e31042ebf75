"""The three-path baseline on stored features of frozen DINOv2-S and GloVe (Table 9)."""
_base_ = ['_base_/models/three_path_dinov2.py', '_base_/settings/fashion_features.py']
model = dict(space=_base_.space)
