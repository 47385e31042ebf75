"""CompCos, open world, on stored features of frozen DINOv2-S and GloVe (Fashion)."""
_base_ = 'compcos_fashion.py'
model = dict(head=dict(margin=0.4, margin_epochs=5))
