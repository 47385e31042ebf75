"""CDS-CZSL, a reconstruction: three paths and the specificity of attributes."""
_base_ = ['../_base_/models/cds_czsl_tiny.py', '../_base_/settings/shapes.py']
model = dict(space=_base_.space)
