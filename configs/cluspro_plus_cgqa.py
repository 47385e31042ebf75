"""ClusPro+: cluspro_cgqa.py with prototypes of seen pairs in prediction.

See docs/variants.md.
"""
_base_ = 'cluspro_cgqa.py'
model = dict(head=dict(type='mmcluspro.ClusProPlusHead'))
