"""Word-vector methods as published: stored features of ResNet-18 (ImageNet), an embedding.

A config of configs/zoo names the folder of the features, the head and its text side.
"""
resnet18 = dict(
    type='mmpretrain.ResNet',
    depth=18,
    init_cfg=dict(type='Pretrained', checkpoint='torchvision://resnet18'))
model = dict(
    type='mmcluspro.CompositionalClassifier',
    data_preprocessor=dict(
        type='mmcluspro.FeaturePreprocessor',
        mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True),
    backbone=dict(
        type='mmcluspro.ProjectedBackbone',
        backbone=dict(type='mmcluspro.CachedFeatures', backbone=resnet18),
        in_channels=512,
        pool='avg'),
    neck=dict(type='mmcluspro.PathEmbedder', out_channels=300),
    head=dict(text=dict(
        path='data/word_vectors/GoogleNews-vectors-negative300.bin.gz', readable='word2vec',
        learn_vectors=True)))
