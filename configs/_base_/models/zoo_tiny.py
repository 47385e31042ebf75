"""Word-vector methods on Shapes: stored features of the tiny CLIP's image tower, an embedding.

Word vectors are the features of the tiny CLIP's text tower for the single names. A config of
configs/zoo names the head, its text side and the width of the embedding.
"""
model = dict(
    type='mmcluspro.CompositionalClassifier',
    data_preprocessor=dict(
        type='mmcluspro.FeaturePreprocessor',
        mean=[122.7709383, 116.7460125, 104.09373615],
        std=[68.5005327, 66.6321579, 70.32316305],
        to_rgb=True),
    backbone=dict(
        type='mmcluspro.CachedFeatures',
        features='data/features/shapes_tiny_clip',
        backbone=dict(type='mmcluspro.CLIPVision', arch='tiny_clip', pretrained='tiny_clip')),
    neck=dict(type='mmcluspro.PathEmbedder', out_channels=64),
    head=dict(text=dict(path='tiny_clip', learn_vectors=True)))
