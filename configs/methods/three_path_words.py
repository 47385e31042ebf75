"""The three-path baseline on stored features and word vectors (Tables 7 and 8)."""
datasets = ('utzappos', 'mitstates', 'cgqa', 'photographs', 'shapes')
_base_ = dict(
    published=[
        '../_base_/models/zoo_resnet18.py', '../_base_/datasets/{dataset}.py', '_resnet18.py',
        '../_base_/schedules/paper.py', '../_base_/default_runtime.py'],
    # That of Table 9.
    photographs='frozen_dinov2_baseline.py',
    shapes='_words.py')
on = dict(
    published=dict(
        model=dict(
            backbone=dict(out_dim=512),
            neck=dict(_delete_=True, type='mmcluspro.PrimitiveAdapter'),
            head=dict(
                type='mmcluspro.ThreePathHead',
                text=dict(type='mmcluspro.WordVectorText', out_dim=512, hidden_dim=512,
                          temperature=0.02))),
        train_dataloader=dict(batch_size=128)),
    shapes=dict(model=dict(
        neck=dict(_delete_=True, type='mmcluspro.PrimitiveAdapter'),
        head=dict(type='mmcluspro.ThreePathHead', text=dict(
            type='mmcluspro.WordVectorText', out_dim=64, hidden_dim=64, temperature=0.1)))))
