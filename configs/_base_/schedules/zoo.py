"""Schedule of the word-vector methods in ExplainableML/czsl: Adam, constant rate 5e-5."""
optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='Adam', lr=5e-5, weight_decay=5e-5))

train_cfg = dict(by_epoch=True, max_epochs=300, val_interval=1)
val_cfg = dict()
test_cfg = dict()
