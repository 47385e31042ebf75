"""Table 4c: only objects are clustered."""
_base_ = '../cluspro_utzappos.py'
model = dict(head=dict(branches=('obj', )))
