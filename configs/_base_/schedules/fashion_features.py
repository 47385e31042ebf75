"""Schedule for Fashion on stored features: 20 epochs of 45 steps; the last epoch counts."""
# Chosen on validation with the three-path baseline on DINOv2 and GloVe, see docs/fashion.md.
optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='Adam', lr=1e-3, weight_decay=5e-5))
param_scheduler = dict(type='CosineAnnealingLR', by_epoch=True, convert_to_iter_based=True)

train_cfg = dict(by_epoch=True, max_epochs=20, val_interval=20)
val_cfg = dict()
test_cfg = dict()
