"""SymNet on stored features of frozen DINOv2-S and GloVe (Fashion)."""
_base_ = ['../_base_/models/zoo_dinov2.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    neck=dict(out_channels=128),
    head=dict(
        type='mmcluspro.SymNetHead', in_channels=128, hidden=128, coupling_hidden=128, dropout=0.1,
        text=dict(type='mmcluspro.WordTableText', learn_vectors=False)))
# Of 1e-3 and 3e-3 on validation, seed 100 (docs/results/zoo_words_rate.jsonl).
optim_wrapper = dict(optimizer=dict(lr=3e-3))
