"""ClusPro on frozen DINOv2-S and GloVe: the three-path baseline with prototypes."""
_base_ = ['three_path_dinov2.py', 'cluspro_head.py']
model = dict(head=dict(in_channels=128, **_base_.cluspro_head))
