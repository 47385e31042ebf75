"""CDS-CZSL, a reconstruction: three paths and the specificity of attributes."""
_base_ = [
    '../_base_/models/cds_czsl_vit-l14.py',
    '../_base_/datasets/c_gqa.py',
    '../_base_/schedules/paper.py',
    '../_base_/default_runtime.py',
]
model = dict(space=_base_.space)
