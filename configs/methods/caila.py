"""CAILA: adapters of concepts in the layers of both towers, and their mixture.

On stored features (Fashion) there are adapters in the text tower only; PrimitiveAdapter stands in
for those of images.
"""
_base_ = dict(
    published=['_one_path.py', '../_base_/datasets/images_256.py'],
    fashion='_one_path.py',
    shapes='_one_path.py')
model = dict(head=dict(
    type='mmcluspro.CAILAHead', loss_weights=dict(attr=1.0, obj=1.0),
    text=dict(
        type='mmcluspro.CAILAText',
        prompt=dict(context='a photo of a', learn=(), names='tokens', attr_dropout=0.0))))
on = dict(
    published=dict(
        model=dict(
            backbone=dict(type='mmcluspro.CAILAVision', with_cp=True),
            head=dict(img_dropout=0.5, text=dict(with_cp=True))),
        train_dataloader=dict(batch_size=16),
        optim_wrapper=dict(optimizer=dict(lr=1e-5, weight_decay=5e-5), accumulative_counts=1),
        train_cfg=dict(max_epochs=21)),
    utzappos=dict(
        model=dict(head=dict(img_dropout=0.1)),
        train_dataloader=dict(batch_size=32),
        optim_wrapper=dict(optimizer=dict(lr=2e-5))),
    fashion=dict(model=dict(
        neck=dict(_delete_=True, type='mmcluspro.PrimitiveAdapter'), head=dict(img_dropout=0.1))),
    shapes=dict(model=dict(
        backbone=dict(type='mmcluspro.CAILAVision'), head=dict(img_dropout=0.0))))
# As released: also learns the table of tokens and three temperatures; other prompts and names.
variants = dict(released=dict(
    datasets=('utzappos', 'mitstates', 'cgqa'),
    model=dict(head=dict(text=dict(released=True, learn_temperature=True))),
    on=dict(utzappos=dict(model=dict(head=dict(text=dict(readable={
        '_delete_': True,
        'Faux.Fur': 'fake fur', 'Faux.Leather': 'fake leather',
        'Full.grain.leather': 'thick leather', 'Hair.Calf': 'hairy leather',
        'Patent.Leather': 'shiny leather', 'Boots.Ankle': 'ankle boots',
        'Boots.Knee.High': 'kneehigh boots', 'Boots.Mid-Calf': 'midcalf boots',
        'Shoes.Boat.Shoes': 'boatshoes', 'Shoes.Clogs.and.Mules': 'clogs shoes',
        'Shoes.Flats': 'flats shoes', 'Shoes.Heels': 'heels', 'Shoes.Loafers': 'loafers',
        'Shoes.Oxfords': 'oxford shoes', 'Shoes.Sneakers.and.Athletic.Shoes': 'sneakers'})))))))
