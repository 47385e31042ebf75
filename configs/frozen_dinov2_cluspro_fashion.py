"""ClusPro on stored features of frozen DINOv2-S and GloVe (Table 9)."""
_base_ = [
    '_base_/models/cluspro_dinov2.py',
    '_base_/datasets/fashion_features.py',
    '_base_/schedules/fashion_features.py',
    '_base_/default_runtime.py',
]
# The paper's 0.99 is for batches of 128, hence 0.99 ** 4 for batches of 512.
model = dict(space=_base_.space, head=dict(bank=dict(momentum=0.96)))
