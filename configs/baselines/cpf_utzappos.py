"""CPF: the object is recognised first, and guides the attribute."""
_base_ = [
    '../_base_/models/cpf_vit-l14.py',
    '../_base_/datasets/ut_zappos.py',
    '../_base_/schedules/paper.py',
    '../_base_/default_runtime.py',
]
model = dict(space=_base_.space, head=dict(text=dict(readable='dots')))
optim_wrapper = dict(optimizer=dict(lr=3.15e-6))
train_cfg = dict(max_epochs=10)
