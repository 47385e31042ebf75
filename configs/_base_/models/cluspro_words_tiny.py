"""ClusPro on stored features of the tiny CLIP's image tower and word vectors."""
_base_ = ['zoo_tiny.py', 'cluspro_head.py']
model = dict(head=dict(in_channels=64, **_base_.cluspro_head))
