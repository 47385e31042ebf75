"""The three-path baseline on stored features of frozen DINOv2-S and GloVe (Table 9)."""
datasets = ('photographs', )
_base_ = [
    '../_base_/models/three_path_dinov2.py', '../_base_/datasets/{stored}.py',
    '../_base_/schedules/fashion_features.py', '../_base_/default_runtime.py']
