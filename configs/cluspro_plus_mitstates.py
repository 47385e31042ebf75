"""ClusPro+: cluspro_mitstates.py with prototypes of seen pairs in prediction.

See docs/variants.md.
"""
_base_ = 'cluspro_mitstates.py'
model = dict(head=dict(type='mmcluspro.ClusProPlusHead'))
