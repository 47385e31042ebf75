"""ClusPro on frozen DINO and word2vec (Table 9), from images."""
_base_ = ['dino_baseline.py', '../_base_/models/cluspro_head.py']
model = dict(head=_base_.cluspro_head)
