"""CPF on the shipped tiny CLIP: objects from the last block, attributes from shallow blocks."""
# LoRA was chosen on validation over adapters, see docs/baselines.md.
_base_ = 'three_path_tiny.py'
model = dict(
    backbone=dict(out_tokens=True, project_layers=True, out_layers=[0, 1, 2]),
    neck=None,
    head=dict(
        type='mmcluspro.CPFHead', in_channels=64, fusion='probability', shallow=3))
