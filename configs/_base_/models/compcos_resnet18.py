"""CompCos on stored features of ResNet-18 and word2vec."""
_base_ = 'zoo_resnet18.py'
model = dict(
    neck=dict(hidden=[768], norm=True, dropout=0.5),
    head=dict(
        type='mmcluspro.CompCosHead',
        text=dict(type='mmcluspro.LinearPairText', out_dim=300)))
