"""CSP: attribute and object vectors learn, the context stays; composition path only."""
_base_ = [
    '../_base_/models/one_path_vit-l14.py',
    '../_base_/datasets/mit_states.py',
    '../_base_/schedules/csp.py',
    '../_base_/default_runtime.py',
]
model = dict(space=_base_.space, head=dict(text=dict(prompt=dict(learn=('vocabulary', )))))
train_dataloader = dict(batch_size=64)
