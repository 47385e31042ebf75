"""CDS-CZSL on CLIP ViT-L/14: three paths and the specificity of attributes."""
_base_ = 'three_path_vit-l14.py'
model = dict(
    backbone=dict(peft=None, with_cp=False),
    head=dict(
        type='mmcluspro.CDSHead', fusion='probability', in_channels=768,
        loss_weights=dict(attr=1.0, obj=1.0),
        text=dict(prompt=dict(attr_dropout=0.3))))
