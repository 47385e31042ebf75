"""CPF: the object is recognised first, and guides the attribute."""
_base_ = ['../_base_/models/cpf_vit-l14.py', '../_base_/settings/mit_states_paper.py']
model = dict(space=_base_.space)
optim_wrapper = dict(optimizer=dict(lr=3.15e-6))
train_cfg = dict(max_epochs=10)
