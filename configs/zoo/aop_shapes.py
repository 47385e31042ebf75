"""AttrAsOp on stored features of the tiny CLIP (Shapes)."""
_base_ = ['../_base_/models/zoo_tiny.py', '../_base_/settings/shapes_features.py']
model = dict(
    space=_base_.space,
    neck=dict(out_channels=64, last_act=True),
    head=dict(
        type='mmcluspro.AoPHead', aux_weight=1.0, comm_weight=1.0,
        text=dict(type='mmcluspro.AoPText')))
# Of 4e-3 and 1e-2 on validation, seed 100 (docs/results/zoo_words_rate.jsonl).
optim_wrapper = dict(optimizer=dict(lr=1e-2))
