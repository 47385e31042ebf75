"""The three-path baseline on stored features of ResNet-18 and word2vec."""
_base_ = 'zoo_resnet18.py'
model = dict(
    backbone=dict(out_dim=512),
    neck=dict(_delete_=True, type='mmcluspro.PrimitiveAdapter', in_channels=512),
    head=dict(
        type='mmcluspro.ThreePathHead',
        text=dict(type='mmcluspro.WordVectorText', out_dim=512, hidden_dim=512, temperature=0.02)))
