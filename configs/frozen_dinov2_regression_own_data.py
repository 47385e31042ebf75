"""Regressions joined with text paths on your own photographs: frozen DINOv2 and word vectors."""
_base_ = 'frozen_dinov2_cluspro_own_data.py'
model = dict(
    backbone=dict(out_dim=None),
    neck=None,
    head=dict(
        _delete_=True, type='mmcluspro.JoinedHead',
        text=dict(
            type='mmcluspro.WordVectorText', path='data/word_vectors/glove_6B_50d.bin',
            readable=None, keep_words=20000, out_dim=128, hidden_dim=128, learn_vectors=True,
            temperature=0.1)))
train_cfg = dict(_delete_=True, type='mmcluspro.FitLoop')
