"""ClusPro on stored features of a frozen CLIP, see docs/features.md."""
_base_ = ['frozen_baseline.py', '../_base_/models/cluspro_head.py']
model = dict(head=_base_.cluspro_head)
# ClusPro+, see docs/variants.md.
variants = dict(plus=dict(
    datasets=('fashion', ), model=dict(head=dict(type='mmcluspro.ClusProPlusHead'))))
