"""The three-path baseline on stored features of the frozen fashion_clip, see docs/fashion.md."""
_base_ = [
    '_base_/models/three_path_fashion_features.py', '_base_/settings/fashion_features.py']
model = dict(space=_base_.space)
