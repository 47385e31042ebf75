"""ClusPro with the settings of the released code: adapters, its losses, its schedule.

The released code computes the decorrelation loss and never adds it, so that it is off here.
"""
_base_ = [
    '_base_/models/three_path_vit-l14.py',
    '_base_/datasets/c_gqa.py',
    '_base_/schedules/paper.py',
    '_base_/default_runtime.py',
]
model = dict(
    space=_base_.space,
    backbone=dict(
        peft=dict(_delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1, dropout=0.1)),
    neck=dict(stages=2, norm='BN', dropout=0.5, residual=False),
    head=dict(
        type='mmcluspro.ClusProHead',
        in_channels=768,
        fusion='logits',
        loss_weights=dict(attr=0.1, obj=0.1),
        text=dict(prompt=dict(attr_dropout=0.0)),
        bank=dict(num_prototypes=5, momentum=0.99, assigner=dict(
            type='mmcluspro.LocalAwareOT', kappa=2.0, epsilon=0.1, scope='batch')),
        loss_pcl=dict(type='mmcluspro.PCLLoss', temperature=0.07, loss_weight=0.2),
        loss_pdl=None))
train_dataloader = dict(batch_size=16)
optim_wrapper = dict(optimizer=dict(lr=3.125e-6, weight_decay=1e-5))
custom_hooks = [
    dict(type='mmcluspro.CompositionHook'),
    dict(type='mmcluspro.EpochSeedHook'),
    dict(type='mmcluspro.PrototypeHook'),
]
