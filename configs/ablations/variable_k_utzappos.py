"""Table 11: K from 1 to 5 by the primitive's share of the training images."""
_base_ = '../cluspro_utzappos.py'
model = dict(head=dict(bank=dict(num_prototypes='share')))
