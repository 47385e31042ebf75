"""SCEN on stored features of ResNet-18 and word2vec."""
_base_ = 'zoo_resnet18.py'
model = dict(
    neck=dict(_delete_=True, type='mmcluspro.SCENNeck', in_channels=512, out_channels=300),
    head=dict(
        type='mmcluspro.SCENHead',
        text=dict(type='mmcluspro.WordVectorText', out_dim=300, hidden_dim=300)))
