"""LE+ on stored features of ResNet-18 and GloVe."""
_base_ = 'zoo_resnet18.py'
model = dict(
    neck=dict(last_act=True),
    head=dict(
        type='mmcluspro.LEPlusHead',
        text=dict(
            type='mmcluspro.LEPlusText', out_dim=300, path='data/word_vectors/glove.6B.300d.txt')))
