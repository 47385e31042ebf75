"""The three-path baseline on Shapes with the head of this project."""
_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/baseline_shapes.py'
custom_imports = dict(imports=['tagger.czsl_head'])
model = dict(head=dict(type='tagger.ScaledHead', factor=2.0, noise=0.1))
