"""fashion_clip zero-shot on stored features: hard prompts, nothing learns."""
_base_ = [
    '_base_/models/one_path_fashion_clip.py',
    '_base_/datasets/fashion_features.py',
    '_base_/schedules/test_only.py',
    '_base_/default_runtime.py',
]
model = dict(space=_base_.space, head=dict(text=dict(
    prompt=dict(learn=(), names='tokens'))))
train_dataloader = None
