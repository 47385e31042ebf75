"""CLIP ViT-L/14 frozen, composition path only: for CLIP zero-shot, CoOp and CSP."""
_base_ = 'three_path_vit-l14.py'
model = dict(
    backbone=dict(peft=None, with_cp=False),
    neck=None,
    head=dict(loss_weights=dict(attr=0, obj=0), fusion='composition'))
