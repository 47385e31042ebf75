"""VP-CMJL: visual proxies beside the texts.

On Shapes there is no dropout, as for Troika. On Fashion LoRA stands in for the adapters, which need
open_clip's blocks.
"""
_base_ = '../baseline_{dataset}.py'
model = dict(
    neck=dict(stages=1, norm='BN', dropout=0.0, residual=False),
    head=dict(type='mmcluspro.VPCMJLHead', fusion='logits',
              text=dict(type='mmcluspro.VPCMJLText')))
_adapters = dict(_delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1)
on = dict(
    published=dict(
        model=dict(
            backbone=dict(peft=dict(**_adapters, dropout=0.1)), neck=dict(dropout=0.5),
            head=dict(text=dict(prompt=dict(attr_dropout=0.3)))),
        train_dataloader=dict(batch_size=32),
        optim_wrapper=dict(optimizer=dict(lr=5e-4, weight_decay=1e-5)),
        param_scheduler=dict(type='StepLR', by_epoch=True, step_size=3, gamma=0.5),
        train_cfg=dict(max_epochs=20)),
    utzappos=dict(
        model=dict(head=dict(proxy_weight=0.7, text_weight=0.3)),
        train_dataloader=dict(batch_size=16)),
    mitstates=dict(
        model=dict(head=dict(proxy_weight=0.3, text_weight=0.7)), train_cfg=dict(max_epochs=15)),
    cgqa=dict(
        model=dict(head=dict(
            proxy_weight=1.0, text_weight=1.0, loss_weights=dict(attr=1.0, obj=1.0))),
        optim_wrapper=dict(optimizer=dict(lr=5e-5))),
    shapes=dict(model=dict(backbone=dict(peft=dict(**_adapters, dropout=0.0)))))
