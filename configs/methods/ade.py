"""ADE: on images with frozen DINO ViT-B/16 and word2vec, or on stored features."""
datasets = ('utzappos', 'mitstates', 'cgqa', 'photographs', 'shapes')
_base_ = dict(
    published=[
        '../_base_/models/three_path_dino.py', '../_base_/datasets/{dataset}.py',
        '../_base_/datasets/images_256.py',
        '../_base_/schedules/zoo.py', '../_base_/default_runtime.py'],
    photographs='_words.py',
    shapes='_words.py')
model = dict(neck=None, head=dict(type='mmcluspro.ADEHead'))
on = dict(
    published=dict(
        model=dict(
            backbone=dict(
                out_dim=None, pool='cls', out_tokens=True, backbone=dict(out_type='raw')),
            head=dict(
                _delete_=True, type='mmcluspro.ADEHead', out_channels=300, object_hidden=[1024],
                text=dict(
                    type='mmcluspro.LinearPairText', out_dim=300, learn_vectors=True,
                    temperature=0.02, readable='word2vec',
                    path='data/word_vectors/GoogleNews-vectors-negative300.bin.gz'))),
        train_dataloader=dict(
            batch_size=128, dataset=dict(pipeline=_base_.test_pipeline))),
    utzappos=dict(optim_wrapper=dict(optimizer=dict(lr=5e-6))),
    mitstates=dict(optim_wrapper=dict(optimizer=dict(lr=5e-6))),
    photographs=dict(model=dict(head=dict(
        in_channels=384, num_tokens=2, dim=128, num_heads=4, hidden=[128], out_channels=50,
        dropout=0.1,
        text=dict(type='mmcluspro.LinearPairText', out_dim=50, temperature=0.02)))),
    shapes=dict(model=dict(head=dict(
        num_tokens=1, dim=64, num_heads=4, hidden=[64], out_channels=64, dropout=0.1,
        text=dict(type='mmcluspro.LinearPairText', out_dim=64, temperature=0.1)))))
