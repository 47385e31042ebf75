"""ClusPro on frozen DINO and word2vec: the three-path baseline with prototypes."""
_base_ = ['three_path_dino.py', 'cluspro_head.py']
model = dict(head=dict(in_channels=768, **_base_.cluspro_head))
