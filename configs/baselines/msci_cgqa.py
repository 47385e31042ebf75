"""MSCI: texts are drawn towards low, then towards high layers of the image tower."""
_base_ = ['../_base_/models/msci_vit-l14.py', '../_base_/settings/c_gqa_paper.py']
model = dict(
    space=_base_.space,
    head=dict(
        with_cp=True, loss_weights=dict(attr=0.1, obj=0.1),
        text=dict(prompt=dict(attr_dropout=0.0))))
train_dataloader = dict(batch_size=48)
optim_wrapper = dict(optimizer=dict(lr=1.25e-5, weight_decay=1e-5))
