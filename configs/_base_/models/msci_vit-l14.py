"""MSCI on CLIP ViT-L/14: texts read the first and the last blocks of the image tower."""
_base_ = 'troika_vit-l14.py'
model = dict(
    backbone=dict(out_tokens=False, project_layers=True, out_layers=[0, 1, 2, 3, -4, -3, -2, -1]),
    head=dict(type='mmcluspro.MSCIHead', low=4, high=4, dropout=0.1))
