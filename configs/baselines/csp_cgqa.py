"""CSP: attribute and object vectors learn, the context stays; composition path only.

CSP's README gives its command for MIT-States for all three datasets.
"""
_base_ = ['../_base_/models/one_path_vit-l14.py', '../_base_/settings/c_gqa_csp.py']
model = dict(space=_base_.space, head=dict(text=dict(prompt=dict(learn=('vocabulary', )))))
train_dataloader = dict(batch_size=64)
