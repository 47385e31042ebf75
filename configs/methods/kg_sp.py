"""KG-SP."""
_base_ = '_words.py'
model = dict(
    neck=dict(paths=['attribute', 'object'], norm=True, last_act=True),
    head=dict(
        type='mmcluspro.KGSPHead',
        text=dict(type='mmcluspro.WordTableText', learn_vectors=False)))
on = dict(
    published=dict(
        model=dict(neck=dict(out_channels=1024, hidden=[768], dropout=0.5)),
        train_dataloader=dict(batch_size=256)),
    utzappos=dict(train_cfg=dict(max_epochs=50)),
    mitstates=dict(train_cfg=dict(max_epochs=200)),
    cgqa=dict(train_cfg=dict(max_epochs=80)),
    photographs=dict(model=dict(neck=dict(out_channels=128, hidden=[128], dropout=0.1))),
    shapes=dict(model=dict(neck=dict(out_channels=64, hidden=[64], dropout=0.1))))
variants = dict(
    # ResNet-18 trains, from images, as published.
    finetuned=dict(datasets=('utzappos', 'mitstates', 'cgqa'), _base_='_finetuned.py'))
