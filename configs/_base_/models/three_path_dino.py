"""The three-path baseline without CLIP: frozen DINO ViT-B/16 and word2vec (Table 9).

The paper says no more than that. Taken from ADE, which it follows: the frozen tower, cosines
times 50, word vectors that learn. Ours: the linear projection of the class token.
"""
dino = dict(
    type='mmcluspro.DINO',
    arch='base',
    pretrained='https://dl.fbaipublicfiles.com/dino/dino_vitbase16_pretrain/'
    'dino_vitbase16_pretrain.pth')
model = dict(
    type='mmcluspro.CompositionalClassifier',
    backbone=dict(
        type='mmcluspro.ProjectedBackbone',
        backbone=dino,
        in_channels=768,
        out_dim=768,
        pool=None,
        frozen=True,
        peft=None),
    neck=dict(type='mmcluspro.PrimitiveAdapter'),
    head=dict(
        type='mmcluspro.ThreePathHead',
        text=dict(
            type='mmcluspro.WordVectorText',
            path='data/word_vectors/GoogleNews-vectors-negative300.bin.gz',
            readable='word2vec',
            out_dim=768,
            learn_vectors=True,
            temperature=0.02)))
