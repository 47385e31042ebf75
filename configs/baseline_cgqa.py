"""The three-path baseline (Table 3, first row)."""
_base_ = [
    '_base_/models/three_path_vit-l14.py',
    '_base_/datasets/cgqa.py',
    '_base_/schedules/paper.py',
    '_base_/default_runtime.py',
]
# The released code drops no names on C-GQA.
model = dict(head=dict(text=dict(prompt=dict(attr_dropout=0.0))))
