"""CPF on the shipped tiny CLIP: the first three of its four blocks are the shallow ones."""
_base_ = 'troika_tiny.py'
model = dict(
    backbone=dict(project_layers=True, out_layers=[0, 1, 2]),
    neck=None,
    head=dict(type='mmcluspro.CPFHead', shallow=3, fusion='probability'))
