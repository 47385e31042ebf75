"""TOMCAT: soft prompts and adapters; prototypes learn from the test images, one by one."""
_base_ = ['../_base_/models/tomcat_tiny.py', '../_base_/settings/shapes.py']
model = dict(space=_base_.space, head=dict(alpha=4.0, test_lr=5e-5))
# The stream of test images has a fixed random order, as in the published code.
stream = dict(sampler=dict(type='DefaultSampler', shuffle=True, seed=0))
val_dataloader, test_dataloader = stream, stream
