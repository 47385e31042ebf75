"""CPF on CLIP ViT-L/14: objects from the last block, attributes from shallow blocks."""
_base_ = 'troika_vit-l14.py'
model = dict(
    backbone=dict(project_layers=True, out_layers=[6, 12, 18]),
    neck=None,
    head=dict(type='mmcluspro.CPFHead', shallow=3, fusion='probability'))
