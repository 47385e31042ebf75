"""TOMCAT: soft prompts and adapters; prototypes learn from the test images, one by one."""
_base_ = ['../_base_/models/tomcat_vit-l14.py', '../_base_/settings/c_gqa_paper.py']
model = dict(space=_base_.space, head=dict(
    alpha=0.5, beta=10.0, theta=2.0, test_lr=6.25e-6, test_decay=1e-4, align_weight=1.75,
    text=dict(prompt=dict(attr_dropout=0.0))))
train_dataloader = dict(batch_size=16)
optim_wrapper = dict(optimizer=dict(weight_decay=1e-5))
train_cfg = dict(max_epochs=10)
# The stream of test images has a fixed random order, as in the published code.
stream = dict(sampler=dict(type='DefaultSampler', shuffle=True, seed=0))
val_dataloader, test_dataloader = stream, stream
