"""dino_cluspro on stored features, without augmentation (docs/features.md)."""
_base_ = ['frozen_dino_baseline.py', '../_base_/models/cluspro_head.py']
model = dict(head=_base_.cluspro_head)
