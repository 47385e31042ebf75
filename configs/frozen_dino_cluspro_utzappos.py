"""dino_cluspro_utzappos.py on stored features, without augmentation (docs/features.md)."""
_base_ = ['frozen_dino_baseline_utzappos.py', '_base_/models/cluspro_head.py']
model = dict(head=dict(in_channels=768, **_base_.cluspro_head))
