"""ClusPro on stored features of ResNet-18 and word2vec (C-GQA)."""
_base_ = ['three_path_words_cgqa.py', '../_base_/models/cluspro_head.py']
model = dict(head=dict(in_channels=512, **_base_.cluspro_head))
