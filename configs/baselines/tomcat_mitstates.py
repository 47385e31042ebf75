"""TOMCAT: soft prompts and adapters; prototypes learn from the test images, one by one."""
_base_ = ['../_base_/models/tomcat_vit-l14.py', '../_base_/settings/mit_states_paper.py']
model = dict(space=_base_.space, head=dict(
    alpha=1.25, beta=10.0, theta=1.5, test_lr=1e-6, test_decay=1e-4, align_weight=2.5))
train_dataloader = dict(batch_size=64)
optim_wrapper = dict(optimizer=dict(weight_decay=1e-4))
# The stream of test images has a fixed random order, as in the published code.
stream = dict(sampler=dict(type='DefaultSampler', shuffle=True, seed=0))
val_dataloader, test_dataloader = stream, stream
