"""ClusPro on the shipped tiny CLIP: the three-path baseline with prototypes."""
_base_ = ['three_path_tiny.py', 'cluspro_head.py']
model = dict(head=dict(in_channels=64, **_base_.cluspro_head))
