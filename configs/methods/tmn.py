"""TMN."""
_base_ = '_words.py'
model = dict(
    neck=None, head=dict(type='mmcluspro.TMNHead', text=dict(type='mmcluspro.WordTableText')))
_small = dict(num_modules=12, num_negatives=15, text=dict(learn_vectors=False))
on = dict(
    published=dict(
        model=dict(head=dict(text=dict(path='data/word_vectors/glove.6B.300d.txt'))),
        train_dataloader=dict(batch_size=256),
        optim_wrapper=dict(
            optimizer=dict(lr=1e-4),
            paramwise_cfg=dict(custom_keys=dict(gater=dict(lr_mult=0.01)))),
        train_cfg=dict(max_epochs=100)),
    utzappos=dict(model=dict(head=dict(width=300, text=dict(
        path='data/word_vectors/GoogleNews-vectors-negative300.bin.gz', learn_vectors=False)))),
    cgqa=dict(optim_wrapper=dict(
        paramwise_cfg=dict(custom_keys=dict(gater=dict(lr_mult=100))))),
    # Of 1e-3 and 3e-3 on validation, seed 100 (docs/results/zoo_words_rate.jsonl).
    photographs=dict(model=dict(head=_small), optim_wrapper=dict(optimizer=dict(lr=3e-3))),
    shapes=dict(model=dict(head=_small)))
