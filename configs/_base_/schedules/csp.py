"""CSP's schedule (README of BatsResearch/csp): Adam, constant rate, 20 epochs, 2 × 64 images."""
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='Adam', lr=5e-5, weight_decay=1e-5),
    accumulative_counts=2)  # of batches of 64

train_cfg = dict(by_epoch=True, max_epochs=20, val_interval=1)
val_cfg = dict()
test_cfg = dict()
