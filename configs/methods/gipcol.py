"""GIPCOL: the vocabulary comes from convolutions on the graph of the labels."""
_base_ = '_one_path.py'
model = dict(head=dict(
    type='mmcluspro.GIPCOLHead',
    text=dict(prompt=dict(type='mmcluspro.GraphPrompt', share_context=True))))
# Chosen on validation (Shapes, one seed): as published 11.9 AUC, without dropout 16.0, and added
# to the names 21.9. The convolutions are narrow here, and the names few.
_narrow = dict(attr_dropout=0.0, graph_dropout=0.0, residual=True)
on = dict(
    published=dict(
        model=dict(head=dict(text=dict(prompt=dict(attr_dropout=0.3)))),
        optim_wrapper=dict(accumulative_counts=1),
        train_cfg=dict(max_epochs=10)),
    # The convolutions have a rate of 5e-5 and a decay of 5e-5 of their own.
    utzappos=dict(
        model=dict(head=dict(text=dict(prompt=dict(attr_dropout=0.2)))),
        optim_wrapper=dict(
            optimizer=dict(lr=5e-4),
            paramwise_cfg=dict(custom_keys=dict(
                convolutions=dict(lr_mult=0.1, decay_mult=5.0))))),
    mitstates=dict(optim_wrapper=dict(
        paramwise_cfg=dict(custom_keys=dict(convolutions=dict(decay_mult=5.0))))),
    cgqa=dict(optim_wrapper=dict(optimizer=dict(weight_decay=5e-5))),
    fashion=dict(model=dict(head=dict(text=dict(prompt=dict(**_narrow, hidden=1024))))),
    shapes=dict(model=dict(head=dict(text=dict(prompt=dict(**_narrow, hidden=256))))))
