"""OADis."""
_base_ = '_words.py'
model = dict(
    neck=dict(_delete_=True, type='mmcluspro.OADisNeck'),
    head=dict(type='mmcluspro.OADisHead', text=dict(type='mmcluspro.WordVectorText')))
on = dict(
    published=dict(
        model=dict(
            neck=dict(hidden=1024, out_channels=300, dropout=0.35),
            head=dict(
                in_channels=1024, dim=300,
                text=dict(
                    type='mmcluspro.OADisText', out_dim=300, dropout=0.1, temperature=0.05))),
        train_dataloader=dict(batch_size=256),
        optim_wrapper=dict(optimizer=dict(lr=1e-4))),
    mitstates=dict(
        model=dict(
            neck=dict(hidden=2048, dropout=0.3),
            head=dict(
                in_channels=2048, weights=dict(both=0.05),
                text=dict(composer='conditioned', dropout=0.05))),
        optim_wrapper=dict(optimizer=dict(lr=3e-4)),
        train_cfg=dict(max_epochs=100)),
    photographs=dict(model=dict(
        neck=dict(hidden=512, out_channels=128, dropout=0.3),
        head=dict(
            in_channels=512, dim=128, text=dict(out_dim=128, hidden_dim=128, temperature=0.1)))),
    shapes=dict(model=dict(
        neck=dict(hidden=128, out_channels=64, dropout=0.3),
        head=dict(
            in_channels=128, dim=64, text=dict(out_dim=64, hidden_dim=64, temperature=0.1)))))
