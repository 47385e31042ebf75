"""Word-vector methods on Fashion: stored DINOv2-S features as they are, an embedding, GloVe.

A config of configs/zoo names the head, its text side and the width of the embedding.
"""
_base_ = 'three_path_dinov2.py'
model = dict(
    backbone=dict(out_dim=None),
    neck=dict(_delete_=True, type='mmcluspro.PathEmbedder', out_channels=128),
    head=dict(
        _delete_=True,
        text=dict(
            path='data/word_vectors/glove_6B_50d.bin',
            readable=_base_.readable,
            learn_vectors=True)))
