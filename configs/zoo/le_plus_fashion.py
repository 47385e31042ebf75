"""LE+ on stored features of frozen DINOv2-S and GloVe (Fashion)."""
_base_ = ['../_base_/models/zoo_dinov2.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    neck=dict(out_channels=128, last_act=True),
    head=dict(type='mmcluspro.LEPlusHead', text=dict(
        type='mmcluspro.LEPlusText', hidden=[128], out_dim=128)))
# Of 1e-3, 3e-3 and 1e-2 on validation, seed 100 (docs/results/zoo_words_rate.jsonl).
optim_wrapper = dict(optimizer=dict(lr=1e-2))
