"""ADE on images: frozen DINO ViT-B/16 and word2vec."""
_base_ = 'three_path_dino.py'
model = dict(
    backbone=dict(out_dim=None, pool='cls', out_tokens=True, backbone=dict(out_type='raw')),
    neck=None,
    head=dict(
        _delete_=True, type='mmcluspro.ADEHead', in_channels=768, out_channels=300,
        text=dict(
            type='mmcluspro.LinearPairText', out_dim=300, learn_vectors=True, temperature=0.02,
            path='data/word_vectors/GoogleNews-vectors-negative300.bin.gz')))
