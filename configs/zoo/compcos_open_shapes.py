"""CompCos, open world, on stored features of the tiny CLIP (Shapes)."""
_base_ = 'compcos_shapes.py'
model = dict(head=dict(margin=0.4, margin_epochs=5))
