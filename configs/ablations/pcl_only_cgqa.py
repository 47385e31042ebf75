"""Table 3, "Prototype-based Contrast": ClusPro without decorrelation."""
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
        loss_pcl=dict(type='mmcluspro.PCLLoss', temperature=0.1, loss_weight=0.2),
        loss_pdl=None))
custom_hooks = [*_base_.custom_hooks, dict(type='mmcluspro.PrototypeHook')]
