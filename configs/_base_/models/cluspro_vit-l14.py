"""ClusPro on CLIP ViT-L/14: the three-path baseline with prototypes."""
_base_ = ['three_path_vit-l14.py', 'cluspro_head.py']
model = dict(head=dict(in_channels=768, **_base_.cluspro_head))
