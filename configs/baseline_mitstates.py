"""The three-path baseline (Table 3, first row)."""
_base_ = ['_base_/models/three_path_vit-l14.py', '_base_/settings/mit_states_paper.py']
model = dict(space=_base_.space)
