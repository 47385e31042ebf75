"""CSP: attribute and object vectors learn, the context stays; composition path only."""
_base_ = ['../_base_/models/one_path_vit-l14.py', '../_base_/settings/mit_states_csp.py']
model = dict(space=_base_.space, head=dict(text=dict(prompt=dict(learn=('vocabulary', )))))
train_dataloader = dict(batch_size=64)
