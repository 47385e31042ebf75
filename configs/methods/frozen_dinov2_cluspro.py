"""ClusPro on stored features of frozen DINOv2-S and GloVe (Table 9)."""
_base_ = ['frozen_dinov2_baseline.py', '../_base_/models/cluspro_head.py']
model = dict(head=_base_.cluspro_head)
# ClusPro+, see docs/variants.md.
variants = dict(plus=dict(model=dict(head=dict(type='mmcluspro.ClusProPlusHead'))))
