"""The three-path baseline without CLIP on Fashion: frozen DINOv2-S and GloVe (Table 9).

On stored features, class token and mean of the patch tokens; narrow, so that a run takes seconds
of one core. Temperature and vectors that learn are those of the DINO configs.
"""
_base_ = 'fashion_words.py'
# GloVe lacks churidar and jeggings.
readable = dict(Churidar='salwar', Jeggings='leggings jeans')
model = dict(
    type='mmcluspro.CompositionalClassifier',
    data_preprocessor=dict(type='mmcluspro.FeaturePreprocessor'),
    backbone=dict(
        type='mmcluspro.ProjectedBackbone',
        backbone=dict(
            type='mmcluspro.CachedFeatures',
            features='data/features/fashion_dinov2_s',
            backbone=dict(
                type='mmcluspro.DINOv2', arch='small',
                pretrained='data/weights/dinov2_vits14_pretrain.pth')),
        in_channels=768,
        out_dim=128,
        pool='cls_avg'),
    neck=dict(type='mmcluspro.PrimitiveAdapter'),
    head=dict(
        type='mmcluspro.ThreePathHead',
        text=dict(
            type='mmcluspro.WordVectorText',
            path='data/word_vectors/glove_6B_50d.bin',
            readable=dict(**_base_.readable, **readable),
            out_dim=128,
            hidden_dim=128,
            learn_vectors=True,
            temperature=0.1)))
