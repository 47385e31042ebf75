"""CoOp as in BatsResearch/csp: the context learns, a name is the fixed mean of its sub-words."""
_base_ = ['../_base_/models/one_path_vit-l14.py', '../_base_/settings/ut_zappos_csp.py']
model = dict(space=_base_.space, head=dict(text=dict(
    readable='dots',
    prompt=dict(learn=('context', ), share_context=True, attr_dropout=0.0))))
train_dataloader = dict(batch_size=64)
