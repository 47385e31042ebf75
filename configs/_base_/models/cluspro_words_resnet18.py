"""ClusPro on stored features of ResNet-18 and word2vec."""
_base_ = ['zoo_resnet18.py', 'cluspro_head.py']
model = dict(
    backbone=dict(out_dim=512),
    neck=dict(_delete_=True, type='mmcluspro.PrimitiveAdapter', in_channels=512),
    head=dict(
        in_channels=512, **_base_.cluspro_head,
        text=dict(type='mmcluspro.WordVectorText', out_dim=512, hidden_dim=512, temperature=0.02)))
