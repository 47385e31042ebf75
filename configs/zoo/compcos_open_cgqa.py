"""CompCos, open world, on stored features of ResNet-18 and word2vec (C-GQA)."""
_base_ = 'compcos_cgqa.py'
model = dict(head=dict(margin=0.4, margin_epochs=15))
