"""ClusPro on fashion_clip: the three-path baseline with prototypes."""
_base_ = ['three_path_fashion_clip.py', 'cluspro_head.py']
model = dict(head=dict(in_channels=256, **_base_.cluspro_head))
