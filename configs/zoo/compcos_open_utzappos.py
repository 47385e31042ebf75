"""CompCos, open world, on stored features of ResNet-18 and word2vec (UT-Zappos)."""
_base_ = 'compcos_utzappos.py'
model = dict(head=dict(margin=1.0, margin_epochs=100))
