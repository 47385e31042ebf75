"""CDS-CZSL, a reconstruction: three paths and the specificity of attributes."""
_base_ = [
    '../_base_/models/cds_czsl_tiny.py',
    '../_base_/datasets/shapes.py',
    '../_base_/schedules/shapes.py',
    '../_base_/default_runtime.py',
]
model = dict(space=_base_.space)
