"""Schedule for Shapes on a CPU: minutes, not hours."""
# Rates chosen on validation with the three-path baseline; prompts are small and move slower.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='Adam', lr=4e-3, weight_decay=5e-5),
    paramwise_cfg=dict(custom_keys={'prompt': dict(lr_mult=0.25)}))
param_scheduler = dict(type='CosineAnnealingLR', by_epoch=True, convert_to_iter_based=True)

train_cfg = dict(by_epoch=True, max_epochs=15, val_interval=1)
val_cfg = dict()
test_cfg = dict()
