"""Schedule for Shapes on a CPU: minutes, not hours."""
optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='Adam', lr=4e-3, weight_decay=5e-5))
param_scheduler = dict(type='CosineAnnealingLR', by_epoch=True, convert_to_iter_based=True)

train_cfg = dict(by_epoch=True, max_epochs=20, val_interval=1)
val_cfg = dict()
test_cfg = dict()
