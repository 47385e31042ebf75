"""CSP on stored features: attribute and object vectors learn; composition path only."""
_base_ = ['../_base_/models/one_path_fashion_clip.py', '../_base_/settings/fashion_features.py']
model = dict(space=_base_.space, head=dict(text=dict(
    prompt=dict(learn=('vocabulary', )))))
