"""CPF on the shipped tiny CLIP: objects from the last block, attributes from shallow blocks."""
_base_ = 'three_path_tiny.py'
model = dict(
    backbone=dict(
        out_tokens=True,
        project_layers=True,
        out_layers=[0, 1, 2],
        peft=dict(
            _delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1, dropout=0.0)),
    neck=None,
    head=dict(
        type='mmcluspro.CPFHead', in_channels=64, fusion='probability', shallow=3))
