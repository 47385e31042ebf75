"""Co-CGE, closed world, on stored features of ResNet-18 and word2vec."""
_base_ = 'zoo_resnet18.py'
model = dict(
    neck=dict(out_channels=512),
    head=dict(
        type='mmcluspro.CoCGEHead',
        text=dict(type='mmcluspro.GraphText', out_dim=512, learn_vectors=False)))
