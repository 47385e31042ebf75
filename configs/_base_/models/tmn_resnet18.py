"""TMN on stored features of ResNet-18; a config names its word vectors."""
_base_ = 'zoo_resnet18.py'
model = dict(
    neck=None,
    head=dict(type='mmcluspro.TMNHead', in_channels=512, text=dict(type='mmcluspro.WordTableText')))
