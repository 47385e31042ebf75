"""GIPCOL: the vocabulary comes from convolutions on the graph of the labels."""
_base_ = ['../_base_/models/one_path_fashion_clip.py', '../_base_/settings/fashion_features.py']
model = dict(space=_base_.space, head=dict(
    type='mmcluspro.GIPCOLHead',
    text=dict(prompt=dict(
        type='mmcluspro.GraphPrompt', share_context=True, attr_dropout=0.0, hidden=1024,
        # Chosen on validation (Shapes, one seed): as published 11.9 AUC, without dropout 16.0, and
        # added to the names 21.9. The convolutions are narrow here, and the names few.
        graph_dropout=0.0, residual=True))))
