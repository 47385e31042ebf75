"""Troika: adapters in the tower, and texts drawn towards the patches of each image."""
_base_ = ['../_base_/models/troika_vit-l14.py', '../_base_/settings/mit_states_paper.py']
model = dict(
    space=_base_.space, head=dict(with_cp=True, traction=dict(num_layers=3, dropout=0.1)))
optim_wrapper = dict(optimizer=dict(lr=1e-4, weight_decay=1e-5))
train_cfg = dict(max_epochs=10)
