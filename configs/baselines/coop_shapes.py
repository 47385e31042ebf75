"""CoOp: the context learns, the names stay hard; composition path only."""
_base_ = ['../_base_/models/one_path_tiny.py', '../_base_/settings/shapes.py']
model = dict(space=_base_.space, head=dict(text=dict(prompt=dict(
    learn=('context', ), names='tokens', share_context=True, attr_dropout=0.0))))
# Three context vectors shared by all pairs: at the rate of the vocabulary they forget.
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'prompt': dict(lr_mult=0.05)}))
