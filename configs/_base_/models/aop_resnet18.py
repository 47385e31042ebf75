"""AttrAsOp on stored features of ResNet-18 and GloVe."""
_base_ = 'zoo_resnet18.py'
model = dict(
    neck=dict(last_act=True),
    head=dict(
        type='mmcluspro.AoPHead', comm_weight=1.0,
        text=dict(type='mmcluspro.AoPText', path='data/word_vectors/glove.6B.300d.txt')))
