"""ClusPro with the paper's settings (_base_/models/cluspro_head.py).

The paper does not give these: batch size and attr_dropout=0.3 (from the released code), rank 16
and dropout 0.1 of LoRA, the form of the adapters, the decay of the rate. See docs/baselines.md.
"""
_base_ = ['_base_/models/cluspro_vit-l14.py', '_base_/settings/ut_zappos_paper.py']
# Names as in the published code.
model = dict(space=_base_.space, head=dict(text=dict(readable='dots')))
