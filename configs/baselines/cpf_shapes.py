"""CPF: the object is recognised first, and guides the attribute."""
_base_ = [
    '../_base_/models/cpf_tiny.py',
    '../_base_/datasets/shapes.py',
    '../_base_/schedules/shapes.py',
    '../_base_/default_runtime.py',
]
model = dict(space=_base_.space)
