"""ClusPro+: cluspro_utzappos.py with prototypes of seen pairs in prediction.

See docs/variants.md.
"""
_base_ = 'cluspro_utzappos.py'
model = dict(head=dict(type='mmcluspro.ClusProPlusHead'))
