"""CPF: the object is recognised first, and guides the attribute."""
_base_ = ['../_base_/models/cpf_tiny.py', '../_base_/settings/shapes_large.py']
model = dict(space=_base_.space)
