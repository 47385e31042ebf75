import os
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from mmengine.dataset import DefaultSampler, pseudo_collate
from mmengine.registry import DefaultScope
from torch.utils.data import DataLoader

from mmcluspro.datasets import (
    CGQA,
    CompositionSpace,
    MITStates,
    UTZappos,
    build_space,
    write_layout,
)
from mmcluspro.datasets import layout as layout_files
from mmcluspro.errors import FileError
from mmcluspro.registry import DATASETS

PIPELINE = [
    {'type': 'mmpretrain.LoadImageFromFile'},
    {'type': 'mmpretrain.PackInputs',
     'algorithm_keys': ['attr_label', 'obj_label', 'pair_label']},
]


def rewrite(layout, rows):
    torch.save(rows, layout.metadata)


@pytest.mark.parametrize('cls', [MITStates, UTZappos, CGQA])
@pytest.mark.parametrize('phase', ['train', 'val', 'test'])
def test_labels_agree_with_the_rows(layout, cls, phase):
    dataset = cls(str(layout.root), phase)

    rows = [row for row in layout.rows if row['set'] == phase]
    assert len(dataset) == len(rows)
    space = dataset.space
    assert space == CompositionSpace.from_splits(layout.root, phase=phase)
    for sample, row in zip(dataset, rows):
        assert sample['img_path'] == os.path.join(layout.root, 'images', row['image'])
        assert space.attributes[sample['attr_label']] == row['attr']
        assert space.objects[sample['obj_label']] == row['obj']
        pair = space.pairs[sample['pair_label']].tolist()
        assert pair == [sample['attr_label'], sample['obj_label']]
        assert dataset.metainfo['classes'][sample['gt_label']] == f'{row["attr"]} {row["obj"]}'


def test_metainfo_is_plain_and_carries_the_space(layout, tmp_path):
    dataset = MITStates(str(layout.root), 'val', metainfo={'source': 'test'})
    torch.save(dataset.metainfo, tmp_path / 'meta.pth')

    meta = torch.load(tmp_path / 'meta.pth', weights_only=True)

    assert CompositionSpace.from_dict(meta['space']) == dataset.space
    known = CompositionSpace.from_splits(layout.root, phase='all').pairs.tolist()
    assert meta['known_pairs'] == known and len(known) == 6
    every = {f'{a} {o}' for phase in ('train', 'val', 'test') for a, o in layout.pairs[phase]}
    assert meta['classes'] == tuple(sorted(every, key=lambda name: tuple(name.split())))
    assert meta['source'] == 'test'


def test_rows_are_left_out_and_counted(layout):
    rewrite(layout, [
        *layout.rows,
        {'image': 'a', 'attr': 'NA', 'obj': 'cat', 'set': 'train'},
        {'image': 'b', 'attr': 'wet', 'obj': 'cat', 'set': 'NA'},
        {'image': 'c', 'attr': 'wet', 'obj': 'whale', 'set': 'train'},
        {'image': 'd', 'attr': 'wet', 'obj': 'whale', 'set': 'test'},
        {'image': 'e', 'attr': 'wet', 'obj': 'cat', 'set': 'drop'},
    ])

    dataset = UTZappos(str(layout.root))

    assert dataset.skipped == {'attribute, object or set NA': 2, 'pair in no pair list': 1,
                               'set none of train, val, test': 1}
    text = repr(dataset)
    for part in ('samples: \t12', 'train', '3 attributes, 2 objects', '4 seen, 0 unseen',
                 '2 (attribute, object or set NA)', '1 (pair in no pair list)'):
        assert part in text


def test_rows_go_by_their_set_not_by_their_pair(layout):
    dataset = UTZappos(str(layout.root), 'val')

    pairs = Counter((s['attr_label'], s['obj_label']) for s in dataset)

    seen = dataset.space.lookup(*map(torch.tensor, zip(*pairs)))
    assert sorted(dataset.space.seen[seen].tolist()) == [False, True]
    assert list(pairs.values()) == [2, 2]


def test_arguments_of_base_dataset_are_respected(layout):
    lazy = UTZappos(str(layout.root), lazy_init=True)
    assert not lazy._fully_initialized and "Haven't been initialized" in repr(lazy)
    lazy.full_init()
    assert len(lazy) == 12
    assert len(UTZappos(str(layout.root), indices=5)) == 5
    plain = UTZappos(str(layout.root), serialize_data=False)
    assert plain.data_list[0]['pair_label'] == lazy[0]['pair_label']
    assert not lazy.test_mode and UTZappos(str(layout.root), 'test').test_mode
    assert UTZappos(str(layout.root), test_mode=True).test_mode


@pytest.mark.parametrize('workers', [0, 2])
def test_through_registry_pipeline_and_loader(layout, workers):
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        dataset = DATASETS.build({'type': 'mmcluspro.UTZappos', 'data_root': str(layout.root),
                                  'phase': 'test', 'pipeline': PIPELINE})
    loader = DataLoader(dataset, 2, sampler=DefaultSampler(dataset, shuffle=False),
                        num_workers=workers, collate_fn=pseudo_collate)

    batch = next(iter(loader))

    assert batch['inputs'][0].shape == (3, 6, 8)
    sample = batch['data_samples'][1]
    assert (sample.attr_label, sample.obj_label, sample.pair_label) == tuple(
        dataset.get_data_info(1)[f'{name}_label'] for name in ('attr', 'obj', 'pair'))
    assert sample.gt_label.tolist() == [dataset.get_data_info(1)['gt_label']]


def test_an_unreadable_image_is_named(layout):
    image = layout.root / 'images' / layout.rows[-1]['image']
    image.write_bytes(b'no image')
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        dataset = UTZappos(str(layout.root), 'test', pipeline=PIPELINE)

    assert dataset[0] is not None
    with pytest.raises(ValueError, match=f'The image {image} cannot be read'):
        dataset[1]


def test_pickles_with_its_space(layout):
    dataset = pickle.loads(pickle.dumps(UTZappos(str(layout.root))))

    assert dataset.space == UTZappos(str(layout.root)).space


@pytest.mark.parametrize('on_disk, written', [(' ', '_'), ('_', ' '), (' ', ' ')])
def test_folders_with_spaces_or_underscores(layout, on_disk, written):
    images = layout.root / 'images'
    for folder in list(images.iterdir()):
        folder.rename(images / folder.name.replace('_', on_disk))
    rewrite(layout, [{**row, 'image': row['image'].replace('_', written)} for row in layout.rows])

    for sample in MITStates(str(layout.root)):
        assert os.path.isfile(sample['img_path'])


def test_the_archive_of_ut_zappos_works_as_it_is(layout):
    rows = [{**row, '_image': f'Shoes/Brand/{i}.png'} for i, row in enumerate(layout.rows)]
    rewrite(layout, rows)
    (layout.root / 'images' / 'Shoes' / 'Brand').mkdir(parents=True)
    for row in rows[:6]:
        (layout.root / 'images' / row['image']).rename(layout.root / 'images' / row['_image'])

    paths = [os.path.relpath(sample['img_path'], layout.root / 'images')
             for sample in UTZappos(str(layout.root))]

    assert paths == [row['_image'] for row in rows[:6]] + [row['image'] for row in rows[6:12]]
    with pytest.raises(ValueError, match='6 problems'):
        MITStates(str(layout.root))


def test_missing_images(layout):
    for row in layout.rows[1:8]:
        (layout.root / 'images' / row['image']).unlink()

    with pytest.raises(ValueError) as error:
        UTZappos(str(layout.root))
    text = str(error.value)
    assert text.startswith('7 problems') and f'{layout.metadata} row 1: no image' in text
    assert repr(layout.rows[1]['image']) in text and '… and 2 more' in text
    assert 'check_images' in text

    skipping = UTZappos(str(layout.root), check_images='skip')
    assert len(skipping) == 5 and skipping.skipped == {'image file missing': 7}
    assert len(UTZappos(str(layout.root), check_images=False)) == 12
    with pytest.raises(ValueError, match="check_images.*got 'sikp'"):
        UTZappos(str(layout.root), check_images='sikp')


def test_no_image_folder(layout):
    (layout.root / 'images').rename(layout.root / 'pictures')

    with pytest.raises(FileNotFoundError, match='No image folder at .*images.*pictures/'):
        UTZappos(str(layout.root))
    assert len(UTZappos(str(layout.root), data_prefix='pictures')) == 12


@pytest.mark.parametrize('cls', [MITStates, UTZappos, CGQA])
def test_a_wrong_root(tmp_path, cls):
    with pytest.raises(FileNotFoundError, match='train_pairs.txt.*data_root'):
        cls(str(tmp_path / 'nowhere' / 'at' / 'all'))


@pytest.mark.parametrize('phase, row, message', [
    ('train', {'attr': 'old', 'obj': 'cat', 'set': 'train'}, r'\(old cat\) is unseen'),
    ('val', {'attr': 'Faux.Fur', 'obj': 'Dog.Big', 'set': 'val'},
     'neither train_pairs.txt nor val_pairs.txt'),
])
def test_a_set_that_contradicts_the_lists(layout, phase, row, message):
    rewrite(layout, [*layout.rows, *[{'image': 'x', **row}] * 7])

    with pytest.raises(ValueError) as error:
        UTZappos(str(layout.root), phase)
    assert error.match(rf'7 problems(.|\n)* row 18: .*{message}(.|\n)*and 2 more')


@pytest.mark.parametrize('rows, message', [
    ([{'image': 'x', 'attr': 'wet', 'obj': 'cat'}], 'row 0: no text under set'),
    ([{'image': 'x', 'attr': 3, 'obj': 'cat', 'set': 'train'}], 'row 0: no text under attr'),
    (['wet cat'], 'row 0: a str instead of a dict'),
    ({'image': 'x'}, 'holds a dict, expected a list'),
    ([], 'no image for phase'),
])
def test_broken_rows(layout, rows, message):
    rewrite(layout, rows)

    with pytest.raises(ValueError, match=message):
        UTZappos(str(layout.root))


def test_files_of_old_torch_versions(layout):
    torch.save(layout.rows, layout.metadata, _use_new_zipfile_serialization=False)

    assert len(UTZappos(str(layout.root))) == 12


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), 'w')


@pytest.mark.parametrize('new', [True, False])
def test_metadata_never_runs_code(layout, tmp_path, new):
    torch.save([Trap(tmp_path / 'was_run')], layout.metadata, _use_new_zipfile_serialization=new)

    with pytest.raises(ValueError, match='could run code'):
        UTZappos(str(layout.root))
    assert not (tmp_path / 'was_run').exists()


def test_metadata_of_numpy_strings_is_to_be_converted(layout):
    rows = [dict(row, attr=np.str_(row['attr'])) for row in layout.rows]
    torch.save(rows, layout.metadata)
    with pytest.raises(FileError, match='could run code.*convert_metadata'):
        UTZappos(str(layout.root))


@pytest.mark.parametrize('content', [b'', b'nonsense', b'PK\x03\x04 cut off'])
def test_damaged_metadata(layout, content):
    layout.metadata.write_bytes(content)

    with pytest.raises(ValueError, match=layout.metadata.name):
        UTZappos(str(layout.root))


def test_missing_metadata(layout):
    layout.metadata.unlink()

    with pytest.raises(FileNotFoundError, match='No metadata at .*natural.t7'):
        UTZappos(str(layout.root))


def test_a_wrong_phase(layout):
    with pytest.raises(ValueError, match="phase must be .* got 'all'"):
        UTZappos(str(layout.root), 'all')


def test_smallest_dataset(tmp_path):
    rows = [{'image': f'{phase}.png', 'attr': 'a', 'obj': 'o', 'set': phase}
            for phase in ('train', 'val', 'test')]
    write_layout(tmp_path, rows, dict.fromkeys(('train', 'val', 'test'), [('a', 'o')]), split='s')

    dataset = CGQA(str(tmp_path), split='s', check_images=False)

    assert [dataset[0][f'{name}_label'] for name in ('attr', 'obj', 'pair')] == [0, 0, 0]


@pytest.mark.parametrize('change, message', [
    ({'pairs': {'train': [('very wet', 'cat')], 'val': [], 'test': []}}, "'very wet'.*underscore"),
    ({'rows': [{'image': 'x', 'attr': 'wet', 'obj': 'cat'}]}, r"Row 0 .* lacks \['set'\]"),
    ({'rows': [{'image': 'x', 'attr': 'old', 'obj': 'cat', 'set': 'train'}]},
     "Row 0 .* no 'train' list"),
])
def test_the_writer_refuses_what_no_reader_could_read(layout, tmp_path, change, message):
    arguments = {'rows': layout.rows, 'pairs': layout.pairs, **change}
    with pytest.raises(ValueError, match=message):
        write_layout(tmp_path / 'out', **arguments)
    assert not (tmp_path / 'out').exists()


def test_lists_and_metadata_are_read_once(layout, monkeypatch):
    for path in layout.root.rglob('*'):
        os.utime(path, (0, 0))  # files of the last second are read each time
    read, text, load = [], layout_files.read_text, torch.load
    monkeypatch.setattr(layout_files, 'read_text', lambda path, *args: read.append(
        path.name) or text(path, *args))
    monkeypatch.setattr(torch, 'load', lambda path, **kwargs: read.append(
        path.name) or load(path, **kwargs))
    for phase in ('train', 'val', 'test'):
        assert len(UTZappos(str(layout.root), phase))
        build_space(dict(type='mmcluspro.UTZappos', data_root=str(layout.root)), phase)
    assert sorted(read) == [f'metadata_{layout.split}.t7', 'test_pairs.txt', 'train_pairs.txt',
                            'val_pairs.txt']
