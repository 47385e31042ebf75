"""ClusPro on your own images with the shipped tiny CLIP, to try things out on a CPU."""
_base_ = [
    '_base_/models/three_path_tiny.py',
    '_base_/models/cluspro_head.py',
    '_base_/datasets/own_data_48.py',
    '_base_/schedules/shapes.py',
    '_base_/default_runtime.py',
]
model = dict(head=_base_.cluspro_head)
# Unlike on Shapes, the best epoch is chosen on validation.
train_cfg = dict(val_interval=1)
