"""CDS-CZSL, a reconstruction: three paths and the specificity of attributes."""
_base_ = ['../_base_/models/cds_czsl_vit-l14.py', '../_base_/settings/mit_states_paper.py']
model = dict(space=_base_.space)
