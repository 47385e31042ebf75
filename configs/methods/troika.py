"""Troika: adapters in the tower, and texts drawn towards the patches of each image.

On Shapes there is no dropout: chosen on validation, see docs/baselines.md. On Fashion LoRA stands
in for the adapters, which need open_clip's blocks.
"""
_base_ = '../baseline_{dataset}.py'
model = dict(
    backbone=dict(out_tokens=True),
    neck=dict(stages=1, norm='BN', dropout=0.0, residual=False),
    head=dict(type='mmcluspro.TroikaHead', fusion='logits'))
_adapters = dict(_delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1)
on = dict(
    published=dict(
        model=dict(backbone=dict(peft=dict(**_adapters, dropout=0.1)), neck=dict(dropout=0.5)),
        optim_wrapper=dict(optimizer=dict(weight_decay=1e-5))),
    utzappos=dict(optim_wrapper=dict(optimizer=dict(lr=5e-4))),
    mitstates=dict(
        model=dict(head=dict(with_cp=True, traction=dict(num_layers=3, dropout=0.1))),
        train_cfg=dict(max_epochs=10)),
    cgqa=dict(
        model=dict(head=dict(
            with_cp=True, loss_weights=dict(attr=0.1, obj=0.1),
            text=dict(prompt=dict(attr_dropout=0.0)))),
        optim_wrapper=dict(optimizer=dict(lr=3.125e-6))),
    shapes=dict(model=dict(backbone=dict(peft=dict(**_adapters, dropout=0.0)))))
