"""TOMCAT: soft prompts and adapters; prototypes learn from the test images, one by one.

On stored features (Fashion) there are no adapters in the tower.
"""
_base_ = '_three_path.py'
model = dict(
    neck=None,
    head=dict(
        type='mmcluspro.TOMCATHead', loss_weights=dict(attr=0, obj=0), fusion='composition',
        text=dict(prompt=dict(share_context=True, attr_dropout=0.0))))
# The stream of test images has a fixed random order, as in the published code.
stream = dict(sampler=dict(type='DefaultSampler', shuffle=True, seed=0))
val_dataloader, test_dataloader = stream, stream
_adapters = dict(_delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1)
on = dict(
    published=dict(model=dict(
        backbone=dict(with_cp=False, peft=dict(**_adapters, dropout=0.1)),
        head=dict(text=dict(prompt=dict(attr_dropout=0.3))))),
    utzappos=dict(
        model=dict(head=dict(
            alpha=0.0, beta=7.5, theta=1.0, test_lr=5e-6, test_decay=1e-3, align_weight=3.5)),
        train_dataloader=dict(batch_size=128),
        optim_wrapper=dict(optimizer=dict(lr=5e-4, weight_decay=1e-5)),
        train_cfg=dict(max_epochs=10)),
    mitstates=dict(
        model=dict(head=dict(
            alpha=1.25, beta=10.0, theta=1.5, test_lr=1e-6, test_decay=1e-4, align_weight=2.5)),
        train_dataloader=dict(batch_size=64),
        optim_wrapper=dict(optimizer=dict(weight_decay=1e-4))),
    cgqa=dict(
        model=dict(head=dict(
            alpha=0.5, beta=10.0, theta=2.0, test_lr=6.25e-6, test_decay=1e-4, align_weight=1.75,
            text=dict(prompt=dict(attr_dropout=0.0)))),
        train_dataloader=dict(batch_size=16),
        optim_wrapper=dict(optimizer=dict(weight_decay=1e-5)),
        train_cfg=dict(max_epochs=10)),
    fashion=dict(model=dict(head=dict(alpha=0.5, test_lr=5e-6))),
    shapes=dict(model=dict(
        backbone=dict(peft=dict(**_adapters, dropout=0.0)),
        head=dict(alpha=4.0, test_lr=5e-5))))
