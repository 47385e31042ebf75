"""Three paths on CLIP, with the paper's schedule; fashion_clip reads stored features."""
_base_ = dict(
    published='../baseline_{dataset}.py',
    fashion=[
        '../_base_/models/three_path_fashion_features.py', '../_base_/datasets/fashion_features.py',
        '../_base_/schedules/fashion_features.py', '../_base_/default_runtime.py'],
    shapes='../baseline_{dataset}.py')
