"""Table 4d, "Classical OT": transport without the structure term (κ=0)."""
_base_ = '../cluspro_utzappos.py'
model = dict(head=dict(bank=dict(assigner=dict(kappa=0.0))))
