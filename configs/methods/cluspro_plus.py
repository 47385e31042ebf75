"""ClusPro+: ClusPro with prototypes of seen pairs in prediction, see docs/variants.md."""
_base_ = '../cluspro_{dataset}.py'
model = dict(head=dict(type='mmcluspro.ClusProPlusHead'))
