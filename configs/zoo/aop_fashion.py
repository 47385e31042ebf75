"""AttrAsOp on stored features of frozen DINOv2-S and GloVe (Fashion)."""
_base_ = ['../_base_/models/zoo_dinov2.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    neck=dict(out_channels=50, last_act=True),
    head=dict(
        type='mmcluspro.AoPHead', aux_weight=1.0, comm_weight=1.0,
        text=dict(type='mmcluspro.AoPText')))
# Of 1e-3, 3e-3 and 1e-2 on validation, seed 100 (docs/results/zoo_words_rate.jsonl).
optim_wrapper = dict(optimizer=dict(lr=1e-2))
