"""The three-path baseline (Table 3, first row)."""
_base_ = [
    '_base_/models/three_path_vit-l14.py',
    '_base_/datasets/utzappos.py',
    '_base_/schedules/paper.py',
    '_base_/default_runtime.py',
]
# Names as in the published code.
model = dict(head=dict(text=dict(readable='dots')))
