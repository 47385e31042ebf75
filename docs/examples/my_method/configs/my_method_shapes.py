"""ClusPro on Shapes with an assigner and a loss of one's own."""
_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/cluspro_shapes.py'
custom_imports = dict(imports=['my_method'])
model = dict(
    head=dict(
        bank=dict(assigner=dict(_delete_=True, type='mmcluspro.CrowdAssigner', price=0.5)),
        loss_pcl=dict(_delete_=True, type='mmcluspro.MarginLoss', margin=0.2, loss_weight=0.5)))
