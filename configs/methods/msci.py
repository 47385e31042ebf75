"""MSCI: texts are drawn towards low, then towards high layers of the image tower.

On Fashion LoRA stands in for its adapters, which need open_clip's blocks.
"""
_base_ = '../baseline_{dataset}.py'
model = dict(
    neck=dict(stages=1, norm='BN', dropout=0.0, residual=False),
    head=dict(type='mmcluspro.MSCIHead', fusion='logits', dropout=0.0))
_tower = dict(out_tokens=False, project_layers=True)
_adapters = dict(_delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1)
on = dict(
    published=dict(
        model=dict(
            backbone=dict(
                **_tower, out_layers=[0, 1, 2, 3, -4, -3, -2, -1],
                peft=dict(**_adapters, dropout=0.1)),
            neck=dict(dropout=0.5),
            head=dict(low=4, high=4, dropout=0.1)),
        optim_wrapper=dict(optimizer=dict(weight_decay=1e-5))),
    utzappos=dict(
        model=dict(
            backbone=dict(out_layers=[0, 1, 2, -3, -2, -1]), head=dict(low=3, high=3)),
        train_dataloader=dict(batch_size=48),
        optim_wrapper=dict(optimizer=dict(type='mmcluspro.BertAdamW', lr=2.5e-4))),
    mitstates=dict(model=dict(head=dict(with_cp=True)), train_cfg=dict(max_epochs=20)),
    cgqa=dict(
        model=dict(head=dict(with_cp=True, loss_weights=dict(attr=0.1, obj=0.1))),
        train_dataloader=dict(batch_size=48),
        optim_wrapper=dict(optimizer=dict(lr=1.25e-5))),
    fashion=dict(model=dict(
        backbone=dict(out_tokens=True, out_layers=[0, 1, 2, -3, -2, -1]))),
    shapes=dict(model=dict(
        backbone=dict(
            **_tower, out_layers=[0, 1, -2, -1], peft=dict(**_adapters, dropout=0.0)),
        head=dict(low=2, high=2))))
