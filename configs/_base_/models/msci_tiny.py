"""MSCI on the shipped tiny CLIP: two low and two high of its four blocks, without dropout."""
_base_ = 'troika_tiny.py'
model = dict(
    backbone=dict(out_tokens=False, project_layers=True, out_layers=[0, 1, -2, -1]),
    head=dict(type='mmcluspro.MSCIHead', low=2, high=2, dropout=0.0))
