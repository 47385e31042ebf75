"""CANet."""
_base_ = '_words.py'
model = dict(
    neck=dict(_delete_=True, type='mmcluspro.CANetNeck'),
    head=dict(
        type='mmcluspro.CANetHead', alpha=0.4, text=dict(type='mmcluspro.WordVectorText')))
on = dict(
    published=dict(
        model=dict(
            neck=dict(out_channels=300),
            head=dict(
                in_channels=512, dim=300,
                text=dict(out_dim=300, hidden_dim=600, dropout=0.5, norm=True, last_act=True,
                          temperature=0.05))),
        train_dataloader=dict(batch_size=256),
        train_cfg=dict(max_epochs=1000)),
    utzappos=dict(
        model=dict(head=dict(text=dict(temperature=0.02))), train_cfg=dict(max_epochs=500)),
    mitstates=dict(model=dict(head=dict(alpha=0.2)), train_cfg=dict(max_epochs=800)),
    photographs=dict(model=dict(
        neck=dict(out_channels=128, hidden=256),
        head=dict(
            in_channels=768, dim=128, text=dict(out_dim=128, hidden_dim=128, temperature=0.02)))),
    shapes=dict(model=dict(
        neck=dict(out_channels=64),
        head=dict(
            in_channels=64, dim=64, text=dict(out_dim=64, hidden_dim=64, temperature=0.1)))))
