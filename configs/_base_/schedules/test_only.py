"""Nothing is trained."""
train_cfg = None
optim_wrapper = None
val_cfg = dict()
test_cfg = dict()
