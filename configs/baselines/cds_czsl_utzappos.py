"""CDS-CZSL, a reconstruction: three paths and the specificity of attributes."""
_base_ = ['../_base_/models/cds_czsl_vit-l14.py', '../_base_/settings/ut_zappos_paper.py']
model = dict(space=_base_.space, head=dict(text=dict(readable='dots')))
