"""ClusPro+: cluspro_shapes.py with prototypes of seen pairs in prediction.

See docs/variants.md.
"""
_base_ = 'cluspro_shapes.py'
model = dict(head=dict(type='mmcluspro.ClusProPlusHead'))
