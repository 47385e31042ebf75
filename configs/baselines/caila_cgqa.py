"""CAILA: adapters of concepts in the layers of both towers, and their mixture."""
_base_ = ['../_base_/models/caila_vit-l14.py', '../_base_/settings/c_gqa_csp.py']
model = dict(space=_base_.space, head=dict(img_dropout=0.5))
train_dataloader = dict(batch_size=16)
optim_wrapper = dict(
    optimizer=dict(lr=1e-5, weight_decay=5e-5), accumulative_counts=1)
