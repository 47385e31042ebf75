"""Schedule for Fashion: 20 epochs, of which the last one counts (validated once, at the end)."""
optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='Adam', lr=5e-4, weight_decay=5e-5))
param_scheduler = dict(type='CosineAnnealingLR', by_epoch=True, convert_to_iter_based=True)

train_cfg = dict(by_epoch=True, max_epochs=20, val_interval=20)
val_cfg = dict()
test_cfg = dict()
