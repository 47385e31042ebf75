"""CPF, a reconstruction: the object is recognised first, and guides the attribute.

Objects come from the last block, attributes from shallow ones. On Shapes LoRA was chosen on
validation over adapters, see docs/baselines.md.
"""
_base_ = '../baseline_{dataset}.py'
model = dict(
    backbone=dict(out_tokens=True),
    neck=None,
    head=dict(type='mmcluspro.CPFHead', fusion='probability', shallow=3))
on = dict(
    published=dict(
        model=dict(
            backbone=dict(
                project_layers=True, out_layers=[6, 12, 18],
                peft=dict(
                    _delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1,
                    dropout=0.1)),
            head=dict(text=dict(prompt=dict(attr_dropout=0.3)))),
        optim_wrapper=dict(optimizer=dict(lr=3.15e-6)),
        train_cfg=dict(max_epochs=10)),
    fashion=dict(model=dict(backbone=dict(out_layers=[3, 6, 9]))),
    shapes=dict(model=dict(backbone=dict(project_layers=True, out_layers=[0, 1, 2]))))
