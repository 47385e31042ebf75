"""ClusPro+: cluspro_shapes_large.py with prototypes of seen pairs in prediction.

See docs/variants.md.
"""
_base_ = 'cluspro_shapes_large.py'
model = dict(head=dict(type='mmcluspro.ClusProPlusHead'))
