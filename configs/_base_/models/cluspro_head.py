"""ClusPro's head with the paper's settings: K=5, μ=0.99, κ=1, τ=0.1, α=0.2, β=0.5.

The update follows Algorithm 1; Eq. 9 has neither of its two additions (docs/clustering.md).
"""
cluspro_head = dict(
    type='mmcluspro.ClusProHead',
    bank=dict(
        num_prototypes=5,
        momentum=0.99,
        correct_only=True,
        normalize_mean=True,
        assigner=dict(type='mmcluspro.LocalAwareOT', kappa=1.0)),
    loss_pcl=dict(type='mmcluspro.PCLLoss', temperature=0.1, loss_weight=0.2),
    loss_pdl=dict(type='mmcluspro.HSICLoss', loss_weight=0.5))
