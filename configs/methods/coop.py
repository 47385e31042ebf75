"""CoOp as in BatsResearch/csp: the context learns, a name is the fixed mean of its sub-words.

On Shapes and Fashion the sub-words of a name stay as they are.
"""
_base_ = '_one_path.py'
model = dict(head=dict(text=dict(prompt=dict(learn=('context', ), share_context=True))))
on = dict(
    published=dict(model=dict(head=dict(text=dict(prompt=dict(attr_dropout=0.0))))),
    fashion=dict(model=dict(head=dict(text=dict(prompt=dict(names='tokens'))))),
    shapes=dict(
        model=dict(head=dict(text=dict(prompt=dict(names='tokens', attr_dropout=0.0)))),
        # Three context vectors shared by all pairs: at the rate of the vocabulary they forget.
        optim_wrapper=dict(paramwise_cfg=dict(custom_keys={'prompt': dict(lr_mult=0.05)}))))
