"""PCVL: one context and the vocabulary learn; composition path only."""
_base_ = '_one_path.py'
model = dict(head=dict(
    type='mmcluspro.PCVLHead', text=dict(prompt=dict(share_context=True, attr_dropout=0.0))))
on = dict(
    published=dict(model=dict(head=dict(text=dict(prompt=dict(attr_dropout=0.3))))),
    utzappos=dict(
        model=dict(head=dict(text=dict(prompt=dict(attr_dropout=0.2)))),
        optim_wrapper=dict(optimizer=dict(lr=5e-4))),
    cgqa=dict(optim_wrapper=dict(optimizer=dict(weight_decay=5e-5))))
