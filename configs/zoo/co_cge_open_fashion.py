"""Co-CGE, open world, on stored features of frozen DINOv2-S and GloVe (Fashion)."""
_base_ = ['../_base_/models/zoo_dinov2.py', '../_base_/settings/fashion_features.py']
model = dict(
    space=_base_.space,
    head=dict(
        type='mmcluspro.CoCGEHead', world='open', margin=0.4, feasibility='trained',
        text=dict(
            type='mmcluspro.GraphText', out_dim=128, hidden_dims=[300], dropout=0.1,
            last_dropout=False, learn_vectors=False, temperature=0.1)))
# Chosen on validation, seed 100: AUC (closed world) 24.1 with 1e-3 and 24.6 with 3e-3,
# both with the published dropout of 0.5; 26.2 with 3e-3 and 0.1.
optim_wrapper = dict(optimizer=dict(lr=3e-3))
