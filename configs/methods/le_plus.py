"""LE+ with GloVe."""
_base_ = '_words.py'
model = dict(
    neck=dict(last_act=True),
    head=dict(type='mmcluspro.LEPlusHead', text=dict(type='mmcluspro.LEPlusText')))
on = dict(
    published=dict(
        model=dict(head=dict(text=dict(
            out_dim=300, readable='glove', path='data/word_vectors/glove.6B.300d.txt'))),
        train_dataloader=dict(batch_size=512),
        train_cfg=dict(max_epochs=2000)),
    # Of 1e-3, 3e-3 and 1e-2 on validation, seed 100 (docs/results/zoo_words_rate.jsonl).
    photographs=dict(
        model=dict(
            neck=dict(out_channels=128), head=dict(text=dict(hidden=[128], out_dim=128))),
        optim_wrapper=dict(optimizer=dict(lr=1e-2))),
    shapes=dict(model=dict(
        neck=dict(out_channels=64), head=dict(text=dict(hidden=[64], out_dim=64)))))
