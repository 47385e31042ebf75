"""MSCI: texts are drawn towards low, then towards high layers of the image tower."""
_base_ = ['../_base_/models/msci_vit-l14.py', '../_base_/settings/mit_states_paper.py']
model = dict(space=_base_.space, head=dict(with_cp=True))
optim_wrapper = dict(optimizer=dict(weight_decay=1e-5))
train_cfg = dict(max_epochs=20)
