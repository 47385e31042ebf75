"""Table 3, "Prototype-based Decorrelation": ClusPro without contrast."""
_base_ = [
    '../_base_/models/three_path_vit-l14.py',
    '../_base_/datasets/c_gqa.py',
    '../_base_/schedules/paper.py',
    '../_base_/default_runtime.py',
]
model = dict(
    space=_base_.space,
    head=dict(
        type='mmcluspro.ClusProHead',
        in_channels=768,
        text=dict(prompt=dict(attr_dropout=0.0)),  # as the released code
        bank=dict(num_prototypes=5, momentum=0.99,
                  assigner=dict(type='mmcluspro.LocalAwareOT', kappa=1.0)),
        loss_pcl=None,
        loss_pdl=dict(type='mmcluspro.HSICLoss', loss_weight=0.5)))
custom_hooks = [*_base_.custom_hooks, dict(type='mmcluspro.PrototypeHook')]
