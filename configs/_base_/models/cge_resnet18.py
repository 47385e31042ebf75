"""CGE on stored features of ResNet-18 and word2vec."""
_base_ = 'zoo_resnet18.py'
model = dict(
    neck=dict(last_act=True),
    head=dict(type='mmcluspro.CGEHead', text=dict(type='mmcluspro.GraphText', learn_vectors=False)))
