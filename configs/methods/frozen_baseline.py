"""The three-path baseline on stored features of a frozen CLIP, see docs/features.md."""
datasets = ('fashion', 'shapes')
_base_ = dict(
    fashion=[
        '../_base_/models/three_path_fashion_features.py', '../_base_/datasets/fashion_features.py',
        '../_base_/schedules/fashion_features.py', '../_base_/default_runtime.py'],
    shapes=['../baseline_shapes.py', '_tiny_features.py'])
