"""GIPCOL on CLIP ViT-L/14: graph convolutions give the vocabulary."""
_base_ = 'three_path_vit-l14.py'
model = dict(
    backbone=dict(peft=None, with_cp=False),
    neck=None,
    head=dict(
        type='mmcluspro.GIPCOLHead', fusion='composition',
        loss_weights=dict(attr=0, obj=0),
        text=dict(prompt=dict(type='mmcluspro.GraphPrompt', share_context=True))))
