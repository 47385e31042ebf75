"""ClusPro on stored features of the tiny CLIP and its word vectors (Shapes)."""
_base_ = ['three_path_words_shapes.py', '../_base_/models/cluspro_head.py']
model = dict(head=dict(in_channels=64, **_base_.cluspro_head))
