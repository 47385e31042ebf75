"""ClusPro on CLIP ViT-L/14 as in the released code: adapters, its clustering, its losses.

The released code computes the decorrelation loss but never adds it, so it is off here.
docs/baselines.md lists what is matched and what is not.
"""
_base_ = 'three_path_vit-l14.py'
model = dict(
    backbone=dict(
        peft=dict(_delete_=True, type='mmcluspro.Bottleneck', width=64, scale=0.1, dropout=0.1)),
    neck=dict(stages=2, norm='BN', dropout=0.5, residual=False),
    head=dict(
        type='mmcluspro.ClusProHead',
        in_channels=768,
        fusion='logits',
        bank=dict(
            num_prototypes=5,
            momentum=0.99,
            correct_only=False,
            normalize_mean=True,
            assigner=dict(type='mmcluspro.LocalAwareOT', kappa=2.0, epsilon=0.1, scope='batch')),
        loss_pcl=dict(type='mmcluspro.PCLLoss', temperature=0.07, loss_weight=0.2),
        loss_pdl=None))
