"""ClusPro on stored features of ResNet-18 and word2vec (UT-Zappos)."""
_base_ = ['three_path_words_utzappos.py', '../_base_/models/cluspro_head.py']
model = dict(head=dict(in_channels=512, **_base_.cluspro_head))
