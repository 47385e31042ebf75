"""Troika on fashion_clip: texts drawn towards the patches of each image."""
_base_ = [
    '../_base_/models/troika_fashion_clip.py',
    '../_base_/datasets/fashion.py',
    '../_base_/schedules/fashion.py',
    '../_base_/default_runtime.py',
]
model = dict(space=_base_.space)
