"""CPF on CLIP ViT-L/14: objects from the last block, attributes from shallow blocks."""
_base_ = 'three_path_vit-l14.py'
model = dict(
    backbone=dict(
        out_tokens=True,
        project_layers=True,
        out_layers=[6, 12, 18],
        peft=dict(
            _delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1, dropout=0.1)),
    neck=None,
    head=dict(
        type='mmcluspro.CPFHead', in_channels=768, fusion='probability', shallow=3))
