"""CANet on stored features of ResNet-18 and word2vec."""
_base_ = 'zoo_resnet18.py'
model = dict(
    neck=dict(_delete_=True, type='mmcluspro.CANetNeck', in_channels=512, out_channels=300),
    head=dict(
        type='mmcluspro.CANetHead', in_channels=512, dim=300,
        text=dict(type='mmcluspro.WordVectorText', out_dim=300, hidden_dim=600, dropout=0.5,
                  norm=True, last_act=True)))
