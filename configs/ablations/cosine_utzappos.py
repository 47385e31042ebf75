"""Table 4d, "Cosine Similarity": the nearest prototype, without transport."""
_base_ = '../cluspro_utzappos.py'
model = dict(head=dict(bank=dict(
    assigner=dict(_delete_=True, type='mmcluspro.CosineAssigner'))))
