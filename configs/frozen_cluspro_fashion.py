"""ClusPro on stored features of the frozen fashion_clip, see docs/fashion.md."""
_base_ = ['frozen_baseline_fashion.py', '_base_/models/cluspro_head.py']
model = dict(head=dict(in_channels=256, **_base_.cluspro_head))
