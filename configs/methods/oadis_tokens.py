"""OADis on the patch tokens of frozen DINO ViT-B/16, from images (Table 9)."""
datasets = ('cgqa', )
_base_ = [
    '../_base_/models/three_path_dino.py', '../_base_/datasets/{dataset}.py',
    '../_base_/schedules/zoo.py', '../_base_/default_runtime.py']
model = dict(
    backbone=dict(out_dim=None, pool='cls', out_tokens=True, backbone=dict(out_type='raw')),
    neck=dict(
        _delete_=True, type='mmcluspro.OADisNeck', hidden=1024, out_channels=300, dropout=0.35),
    head=dict(
        _delete_=True, type='mmcluspro.OADisHead', in_channels=1024, dim=300,
        text=dict(
            type='mmcluspro.WordVectorText', out_dim=300, hidden_dim=300, temperature=0.05,
            path='data/word_vectors/GoogleNews-vectors-negative300.bin.gz', learn_vectors=True)))
train_dataloader = dict(batch_size=256)
optim_wrapper = dict(optimizer=dict(lr=1e-4))
