"""PLID: prompts read the descriptions of their pair, which also give their distribution."""
_base_ = '_one_path.py'
model = dict(head=dict(
    type='mmcluspro.PLIDHead', loss_weights=dict(attr=0.01, obj=0.01),
    text=dict(type='mmcluspro.PLIDText', prompt=dict(share_context=True, attr_dropout=0.0))))
_adapter = dict(_delete_=True, type='mmcluspro.PrimitiveAdapter', norm=None, act='GELU')
on = dict(
    published=dict(
        model=dict(
            neck=dict(_delete_=True, type='mmcluspro.PLIDNeck'),
            head=dict(text=dict(
                released=True, attn_dropout=0.1, prompt=dict(attr_dropout=0.3)))),
        train_dataloader=dict(dataset=dict(pipeline=_base_.test_pipeline)),
        optim_wrapper=dict(optimizer=dict(eps=1e-4))),
    utzappos=dict(
        model=dict(head=dict(smoothing=0.001)),
        train_dataloader=dict(batch_size=128),
        optim_wrapper=dict(optimizer=dict(lr=1e-4)),
        train_cfg=dict(max_epochs=25),
        param_scheduler=dict(type='StepLR', by_epoch=True, step_size=5, gamma=0.5)),
    mitstates=dict(
        model=dict(head=dict(
            loss_weights=dict(attr=0.1, obj=0.1), text=dict(attn_dropout=0.5))),
        optim_wrapper=dict(optimizer=dict(weight_decay=2e-5)),
        train_cfg=dict(max_epochs=50),
        param_scheduler=dict(type='StepLR', by_epoch=True, step_size=10, gamma=0.5)),
    cgqa=dict(
        model=dict(head=dict(smoothing=0.01, group_objects=True)),
        optim_wrapper=dict(optimizer=dict(lr=1e-5)),
        param_scheduler=dict(type='StepLR', by_epoch=True, step_size=4, gamma=0.5)),
    fashion=dict(model=dict(neck=dict(**_adapter, hidden=1024))),
    shapes=dict(model=dict(
        neck=dict(**_adapter, hidden=256), head=dict(text=dict(attn_dropout=0.0)))))
