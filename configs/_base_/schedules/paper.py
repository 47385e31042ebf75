"""The paper's schedule: Adam, lr 1e-4, weight decay 5e-5, 15 epochs."""
optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='Adam', lr=1e-4, weight_decay=5e-5))
# The paper gives no decay of the rate; Troika halves it every 5 epochs.
param_scheduler = dict(type='StepLR', by_epoch=True, step_size=5, gamma=0.5)

train_cfg = dict(by_epoch=True, max_epochs=15, val_interval=1)
val_cfg = dict()
test_cfg = dict()
