"""CompCos, closed world; compcos_open is for the open world."""
_base_ = '_words.py'
model = dict(
    neck=dict(norm=True),
    head=dict(type='mmcluspro.CompCosHead', text=dict(type='mmcluspro.LinearPairText')))
on = dict(
    published=dict(
        model=dict(
            neck=dict(hidden=[768], dropout=0.5),
            head=dict(text=dict(out_dim=300, temperature=0.01))),
        train_dataloader=dict(batch_size=128),
        train_cfg=dict(max_epochs=300)),
    utzappos=dict(model=dict(head=dict(text=dict(temperature=0.02)))),
    mitstates=dict(model=dict(head=dict(text=dict(temperature=0.05)))),
    photographs=dict(model=dict(
        neck=dict(out_channels=128, hidden=[128], dropout=0.1),
        head=dict(text=dict(out_dim=128, temperature=0.1)))),
    shapes=dict(model=dict(
        neck=dict(out_channels=64, hidden=[64], dropout=0.1),
        head=dict(text=dict(out_dim=64, temperature=0.1)))))
variants = dict(open=dict(
    model=dict(head=dict(margin=0.4, margin_epochs=5)),
    on=dict(
        published=dict(model=dict(head=dict(margin_epochs=15))),
        utzappos=dict(model=dict(head=dict(margin=1.0, margin_epochs=100))))))
