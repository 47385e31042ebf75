"""ClusPro with the settings of the released code. It trains with mixed precision: add --amp.

The released code computes the decorrelation loss but never adds it, so it is off here.
docs/baselines.md lists what is matched and what is not.
"""
datasets = ('utzappos', 'mitstates', 'cgqa')
_base_ = '../baseline_{dataset}.py'
model = dict(
    backbone=dict(
        peft=dict(_delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1, dropout=0.1)),
    neck=dict(stages=2, norm='BN', dropout=0.5, residual=False),
    head=dict(
        type='mmcluspro.ClusProHead',
        fusion='logits',
        bank=dict(
            num_prototypes=5,
            momentum=0.99,
            correct_only=False,
            normalize_mean=True,
            assigner=dict(type='mmcluspro.LocalAwareOT', kappa=2.0, epsilon=0.1, scope='batch')),
        loss_pcl=dict(type='mmcluspro.PCLLoss', temperature=0.07, loss_weight=0.2),
        loss_pdl=None))
optim_wrapper = dict(optimizer=dict(weight_decay=1e-5))
# StepLR(5, 0.5), stepped twice at the end of each epoch.
param_scheduler = dict(
    _delete_=True, type='MultiStepLR', by_epoch=True, milestones=[3, 5, 8, 10, 13], gamma=0.5)
on = dict(
    utzappos=dict(optim_wrapper=dict(optimizer=dict(lr=5e-4))),
    mitstates=dict(
        train_cfg=dict(max_epochs=10), param_scheduler=dict(milestones=[3, 5, 8])),
    cgqa=dict(
        model=dict(head=dict(loss_weights=dict(attr=0.1, obj=0.1))),
        optim_wrapper=dict(optimizer=dict(lr=3.125e-6))))
