"""CVGAE on stored features of ResNet-18 and word2vec."""
_base_ = 'zoo_resnet18.py'
model = dict(
    neck=dict(out_channels=1600, hidden=[800, 1000], norm=True, dropout=0.5),
    head=dict(
        type='mmcluspro.CVGAEHead',
        text=dict(
            type='mmcluspro.VariationalGraphText', learn_vectors=False, temperature=1 / 1600)))
