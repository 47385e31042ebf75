"""AttrAsOp with GloVe."""
_base_ = '_words.py'
model = dict(
    neck=dict(last_act=True),
    head=dict(
        type='mmcluspro.AoPHead', comm_weight=1.0, aux_weight=1.0,
        text=dict(type='mmcluspro.AoPText')))
on = dict(
    published=dict(
        model=dict(head=dict(
            text=dict(readable='glove', path='data/word_vectors/glove.6B.300d.txt'))),
        train_dataloader=dict(batch_size=512),
        optim_wrapper=dict(paramwise_cfg=dict(custom_keys=dict(operators=dict(lr_mult=0.1)))),
        train_cfg=dict(max_epochs=1000)),
    mitstates=dict(model=dict(head=dict(aux_weight=1000.0))),
    cgqa=dict(train_dataloader=dict(batch_size=128)),
    # Of 1e-3, 3e-3 and 1e-2 (Shapes: 4e-3 and 1e-2) on validation, seed 100
    # (docs/results/zoo_words_rate.jsonl).
    photographs=dict(
        model=dict(neck=dict(out_channels=50)), optim_wrapper=dict(optimizer=dict(lr=1e-2))),
    shapes=dict(
        model=dict(neck=dict(out_channels=64)), optim_wrapper=dict(optimizer=dict(lr=1e-2))))
