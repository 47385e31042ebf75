"""CAPE on stored features of ResNet-18 and word2vec."""
_base_ = 'zoo_resnet18.py'
model = dict(
    neck=dict(out_channels=512),
    head=dict(
        type='mmcluspro.ThreePathHead', fusion='composition',
        loss_weights=dict(attr=0, obj=0),
        text=dict(type='mmcluspro.CAPEText', out_dim=512, num_heads=6, learn_vectors=False)))
