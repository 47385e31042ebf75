"""The three-path baseline on frozen DINO and word2vec (Table 9), from images."""
datasets = ('utzappos', 'cgqa')
_base_ = [
    '../_base_/models/three_path_dino.py', '../_base_/datasets/{dataset}.py',
    '../_base_/schedules/paper.py', '../_base_/default_runtime.py']
train_dataloader = dict(batch_size=128)  # as ADE; the paper does not say
