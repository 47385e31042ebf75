"""CLIP zero-shot: hard prompts, nothing learns. Tested by tools/test.py without a checkpoint."""
_base_ = [
    '_base_/models/one_path_vit-l14.py',
    '_base_/datasets/mit_states.py',
    '_base_/schedules/test_only.py',
    '_base_/default_runtime.py',
]
model = dict(space=_base_.space, head=dict(text=dict(
    prompt=dict(learn=(), names='tokens', attr_dropout=0.0))))
train_dataloader = None
