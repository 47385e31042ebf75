"""CoOp on stored features: the context learns, the names stay hard; composition path only."""
_base_ = ['../_base_/models/one_path_fashion_clip.py', '../_base_/settings/fashion_features.py']
model = dict(space=_base_.space, head=dict(text=dict(prompt=dict(
    learn=('context', ), names='tokens', share_context=True))))
