"""CSP: attribute and object vectors learn, the context stays; composition path only."""
_base_ = ['../_base_/models/one_path_tiny.py', '../_base_/settings/shapes_large.py']
model = dict(space=_base_.space, head=dict(text=dict(
    prompt=dict(learn=('vocabulary', ), attr_dropout=0.0))))
