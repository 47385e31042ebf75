"""The phase and the order of the images of the three dataloaders."""
train_dataloader = dict(
    dataset=dict(phase='train'), sampler=dict(type='DefaultSampler', shuffle=True))
val_dataloader = dict(
    dataset=dict(phase='val'), sampler=dict(type='DefaultSampler', shuffle=False))
test_dataloader = dict(
    dataset=dict(phase='test'), sampler=dict(type='DefaultSampler', shuffle=False))
