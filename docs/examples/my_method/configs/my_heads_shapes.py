"""The three-path baseline on Shapes with a further loss and a head of one's own."""
_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/baseline_shapes.py'
custom_imports = dict(imports=['my_method'])
model = dict(
    backbone=dict(out_layers=(-1, )),
    head=dict(
        type='mmcluspro.LateInteractionHead',
        layer='layer_3',
        in_channels=96,
        losses=[dict(type='mmcluspro.PairMarginLoss', name='margin', loss_weight=0.1)]))
