"""KG-SP on stored features of ResNet-18 and word2vec."""
_base_ = 'zoo_resnet18.py'
model = dict(
    neck=dict(
        out_channels=1024, hidden=[768], paths=['attribute', 'object'], norm=True, dropout=0.5,
        last_act=True),
    head=dict(
        type='mmcluspro.KGSPHead', in_channels=1024,
        text=dict(type='mmcluspro.WordTableText', learn_vectors=False)))
