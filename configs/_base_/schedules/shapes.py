"""Schedule for Shapes on a CPU: minutes, not hours."""
# Rates chosen on validation with the three-path baseline; prompts are small and move slower.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='Adam', lr=4e-3, weight_decay=5e-5),
    paramwise_cfg=dict(custom_keys={'prompt': dict(lr_mult=0.25)}))
param_scheduler = dict(type='CosineAnnealingLR', by_epoch=True, convert_to_iter_based=True)

# Validated once, after the last epoch: this is what is tested, so that no epoch is chosen by the
# luck of a maximum. best_*.pth is that epoch, with its calibration.
train_cfg = dict(by_epoch=True, max_epochs=16, val_interval=1000)
val_cfg = dict()
test_cfg = dict()
