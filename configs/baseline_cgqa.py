"""The three-path baseline (Table 3, first row)."""
_base_ = ['_base_/models/three_path_vit-l14.py', '_base_/settings/c_gqa_paper.py']
# The released code drops no names on C-GQA.
model = dict(space=_base_.space, head=dict(text=dict(prompt=dict(attr_dropout=0.0))))
