"""cluspro_shapes.py on stored features of the frozen tiny CLIP, see docs/features.md."""
_base_ = ['frozen_baseline_shapes.py', '_base_/models/cluspro_head.py']
model = dict(head=dict(in_channels=64, **_base_.cluspro_head))
