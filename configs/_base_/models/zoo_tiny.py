"""Word-vector methods on Shapes: stored features of the tiny CLIP's image tower, an embedding.

Word vectors are the features of the tiny CLIP's text tower for the single names. A config of
configs/zoo names the head, its text side and the width of the embedding.
"""
model = dict(
    type='mmcluspro.CompositionalClassifier',
    data_preprocessor=dict(type='mmcluspro.FeaturePreprocessor'),
    backbone=dict(
        type='mmcluspro.CachedFeatures',
        features='data/features/shapes_tiny_clip',
        backbone=dict(type='mmcluspro.CLIPVision', arch='tiny_clip', pretrained='tiny_clip')),
    neck=dict(type='mmcluspro.PathEmbedder', out_channels=64),
    head=dict(text=dict(path='tiny_clip', learn_vectors=True)))
