"""SymNet on stored features of ResNet-18; a config names its word vectors."""
_base_ = 'zoo_resnet18.py'
model = dict(
    head=dict(
        type='mmcluspro.SymNetHead', in_channels=300,
        text=dict(type='mmcluspro.WordTableText', learn_vectors=False)))
