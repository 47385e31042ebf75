"""Table 4c: only attributes are clustered."""
_base_ = '../cluspro_utzappos.py'
model = dict(head=dict(branches=('attr', )))
