"""TOMCAT: soft prompts; prototypes learn from the test images, one by one."""
_base_ = ['../_base_/models/one_path_fashion_clip.py', '../_base_/settings/fashion_features.py']
model = dict(space=_base_.space, head=dict(
    type='mmcluspro.TOMCATHead', alpha=0.5, test_lr=5e-6,
    text=dict(prompt=dict(share_context=True, attr_dropout=0.0))))
# The stream of test images has a fixed random order, as in the published code.
stream = dict(sampler=dict(type='DefaultSampler', shuffle=True, seed=0))
val_dataloader, test_dataloader = stream, stream
