"""ClusPro+: frozen_cluspro_fashion.py with prototypes of seen pairs in prediction.

See docs/variants.md.
"""
_base_ = 'frozen_cluspro_fashion.py'
model = dict(head=dict(type='mmcluspro.ClusProPlusHead'))
