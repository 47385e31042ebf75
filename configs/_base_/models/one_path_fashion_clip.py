"""fashion_clip frozen on stored features, composition path only: zero-shot, CoOp and CSP."""
_base_ = 'three_path_fashion_features.py'
model = dict(neck=None, head=dict(loss_weights=dict(attr=0, obj=0), fusion='composition'))
