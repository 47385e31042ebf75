"""CPF on fashion_clip with LoRA: objects from the last block, attributes from shallow blocks."""
_base_ = ['../_base_/models/three_path_fashion_clip.py', '../_base_/settings/fashion.py']
model = dict(
    space=_base_.space,
    backbone=dict(out_tokens=True, out_layers=[3, 6, 9]),
    neck=None,
    head=dict(type='mmcluspro.CPFHead', in_channels=256, fusion='probability', shallow=3))
