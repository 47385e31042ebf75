"""DFSP on CLIP ViT-L/14: decomposed texts are fused with the tokens of the image."""
_base_ = 'three_path_vit-l14.py'
model = dict(
    backbone=dict(peft=None, with_cp=False, out_tokens=True),
    neck=None,
    head=dict(
        type='mmcluspro.DFSPHead', fusion='composition', in_channels=768, direction='t2i',
        loss_weights=dict(attr=0.01, obj=0.01),
        text=dict(prompt=dict(share_context=True, attr_dropout=0.3))))
