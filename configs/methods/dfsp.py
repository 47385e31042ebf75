"""DFSP: decomposed texts are fused with the tokens of the image (t2i; i2t and BiF by option, on
Fashion as dfsp_i2t and dfsp_bif).

On stored features (Fashion) an image has one feature in place of tokens.
"""
_base_ = '_one_path.py'
model = dict(head=dict(
    type='mmcluspro.DFSPHead', direction='t2i', loss_weights=dict(attr=0.01, obj=0.01),
    text=dict(prompt=dict(share_context=True, attr_dropout=0.0))))
on = dict(
    published=dict(
        model=dict(
            backbone=dict(out_tokens=True),
            head=dict(text=dict(prompt=dict(attr_dropout=0.3)))),
        train_dataloader=dict(batch_size=128),
        param_scheduler=dict(type='StepLR', by_epoch=True, step_size=3, gamma=0.5)),
    utzappos=dict(optim_wrapper=dict(optimizer=dict(lr=5e-4))),
    mitstates=dict(optim_wrapper=dict(optimizer=dict(lr=1e-4))),
    cgqa=dict(
        train_dataloader=dict(batch_size=256), optim_wrapper=dict(accumulative_counts=1)),
    shapes=dict(model=dict(backbone=dict(out_tokens=True))))
# Fusion into 95 texts per image is costly, so bfloat16 is on.
_costly = dict(type='mmcluspro.BFloat16OptimWrapper')
variants = dict(
    i2t=dict(
        datasets=('fashion', ), model=dict(head=dict(direction='i2t')), optim_wrapper=_costly),
    bif=dict(
        datasets=('fashion', ), model=dict(head=dict(direction='BiF')), optim_wrapper=_costly),
    # As released: all tokens of image and prompt take part in the fusion.
    released=dict(
        datasets=('utzappos', 'mitstates', 'cgqa'),
        model=dict(
            backbone=dict(out_tokens=False, out_layers=[-1]),
            head=dict(type='mmcluspro.DFSPReleasedHead', text=dict(type='mmcluspro.DFSPText'))),
        on=dict(utzappos=dict(model=dict(head=dict(direction='i2t'))))))
