"""CompCos, open world, on stored features of ResNet-18 and word2vec (MIT-States)."""
_base_ = 'compcos_mitstates.py'
model = dict(head=dict(margin=0.4, margin_epochs=15))
