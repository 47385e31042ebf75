"""ClusPro on stored features of the tiny CLIP and its word vectors (Shapes)."""
_base_ = [
    '../_base_/models/cluspro_words_tiny.py',
    '../_base_/datasets/shapes_features.py',
    '../_base_/schedules/shapes.py',
    '../_base_/default_runtime.py',
]
model = dict(
    space=_base_.space,
    neck=dict(_delete_=True, type='mmcluspro.PrimitiveAdapter', in_channels=64),
    head=dict(text=dict(
        type='mmcluspro.WordVectorText', out_dim=64, hidden_dim=64, temperature=0.1)))
