"""CVGAE on stored features of frozen DINOv2-S and GloVe (Fashion)."""
_base_ = ['../_base_/models/zoo_dinov2.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    neck=dict(out_channels=128, hidden=[256], norm=True, dropout=0.1),
    head=dict(type='mmcluspro.CVGAEHead', text=dict(
        type='mmcluspro.VariationalGraphText', out_dim=128, node_dim=128, hidden_dim=512,
        pair_dim=256, dropout=0.1, learn_vectors=False, temperature=0.02)))
# The schedule's 1e-3: AUC 28.4 on validation, seed 100.
