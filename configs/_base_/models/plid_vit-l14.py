"""PLID on CLIP ViT-L/14: prompts read the descriptions of their pair."""
_base_ = 'three_path_vit-l14.py'
model = dict(
    backbone=dict(peft=None, with_cp=False),
    neck=dict(
        _delete_=True, type='mmcluspro.PrimitiveAdapter', in_channels=768, hidden=3072, norm=None,
        act='GELU'),
    head=dict(
        type='mmcluspro.PLIDHead', fusion='composition',
        loss_weights=dict(attr=0, obj=0),
        text=dict(type='mmcluspro.PLIDText', prompt=dict(share_context=True, attr_dropout=0.3))))
