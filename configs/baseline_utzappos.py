"""The three-path baseline (Table 3, first row)."""
_base_ = ['_base_/models/three_path_vit-l14.py', '_base_/settings/ut_zappos_paper.py']
# Names as in the published code.
model = dict(space=_base_.space, head=dict(text=dict(readable='dots')))
