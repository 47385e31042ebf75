"""TOMCAT: soft prompts and adapters; prototypes learn from the test images, one by one."""
_base_ = ['../_base_/models/tomcat_vit-l14.py', '../_base_/settings/ut_zappos_paper.py']
model = dict(space=_base_.space, head=dict(
    alpha=0.0, beta=7.5, theta=1.0, test_lr=5e-6, test_decay=1e-3, align_weight=3.5,
    text=dict(readable='dots')))
train_dataloader = dict(batch_size=128)
optim_wrapper = dict(optimizer=dict(lr=5e-4, weight_decay=1e-5))
train_cfg = dict(max_epochs=10)
# The stream of test images has a fixed random order, as in the published code.
stream = dict(sampler=dict(type='DefaultSampler', shuffle=True, seed=0))
val_dataloader, test_dataloader = stream, stream
