"""ClusPro on stored features and word vectors (Tables 7 and 8)."""
_base_ = ['three_path_words.py', '../_base_/models/cluspro_head.py']
model = dict(head=_base_.cluspro_head)
