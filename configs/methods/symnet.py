"""SymNet."""
_base_ = '_words.py'
model = dict(head=dict(
    type='mmcluspro.SymNetHead', text=dict(type='mmcluspro.WordTableText', learn_vectors=False)))
_small = dict(hidden=128, coupling_hidden=128, dropout=0.1)
on = dict(
    published=dict(
        model=dict(head=dict(
            draw='pair', text=dict(path='data/word_vectors/glove.6B.300d.txt'))),
        train_dataloader=dict(batch_size=512),
        train_cfg=dict(max_epochs=2000)),
    utzappos=dict(model=dict(head=dict(
        text=dict(readable='words', path='data/word_vectors/crawl-300d-2M.vec')))),
    mitstates=dict(
        model=dict(head=dict(loss_weights=dict(obj=0.1))), train_dataloader=dict(batch_size=450)),
    # Of 1e-3 and 3e-3 on validation, seed 100 (docs/results/zoo_words_rate.jsonl).
    photographs=dict(
        model=dict(neck=dict(out_channels=128), head=_small),
        optim_wrapper=dict(optimizer=dict(lr=3e-3))),
    shapes=dict(model=dict(neck=dict(out_channels=64), head=_small)))
