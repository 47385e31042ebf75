"""Stored features: what is read, and what is refused."""
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from mmengine.dataset import pseudo_collate
from mmengine.registry import DefaultScope
from torch.utils.data import DataLoader

from mmcluspro.datasets import ShapesCZSL, TableCZSL, UTZappos, write_layout
from mmcluspro.errors import FileError
from mmcluspro.features import FeatureStore, PhaseWriter, start_folder, write_phase
from mmcluspro.features.store import differences, read_shard, sample_name
from mmcluspro.utils.digest import checksum
from mmcluspro.utils.files import HOST
from mmcluspro.utils.progress import Progress

PIPELINE = [
    dict(type='LoadImageFromFile'),
    dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label']),
]
FACTS = dict(backbone=dict(type='Sum', width=3), weights={}, fingerprint=7, pipeline=PIPELINE,
             preprocessor={}, pool=None, dtype='float32', shard_size=5)


@pytest.fixture(autouse=True)
def scope():
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        yield


def encode(images):
    """A stand-in for a backbone: the mean of each colour, and one number more."""
    images = torch.stack(images).float()
    return torch.cat([images.mean(dim=(2, 3)), images.amax(dim=(1, 2, 3))[:, None]], dim=1)


def images_of(layout, phase='train', **kwargs):
    return UTZappos(str(layout.root), phase, pipeline=PIPELINE, test_mode=True, **kwargs)


def paint_all(layout):
    """Another colour for each image."""
    from PIL import Image
    for number, row in enumerate(layout.rows):
        Image.new('RGB', (8, 6), (number, 7 * number % 256, 99)).save(
            layout.root / 'images' / row['image'])


@pytest.fixture
def stored(layout, tmp_path):
    """Features of the 12 + 4 + 2 images, in shards of 5."""
    paint_all(layout)
    root = tmp_path / 'features'
    start_folder(root, FACTS)
    for phase in ('train', 'val', 'test'):
        write_phase(images_of(layout, phase), encode, root, phase, batch_size=2)
    return root


def read(layout, root, phase='train', **kwargs):
    return UTZappos(str(layout.root), phase, pipeline=PIPELINE, features=str(root),
                    check_images=False, **kwargs)


@pytest.mark.parametrize('phase', ['train', 'val', 'test'])
@pytest.mark.parametrize('workers', [0, 1])
def test_samples_hold_the_feature_of_their_image(layout, stored, phase, workers):
    images = images_of(layout, phase)

    loader = DataLoader(read(layout, stored, phase), batch_size=5, num_workers=workers,
                        collate_fn=pseudo_collate)

    got = torch.cat([torch.stack(batch['inputs']) for batch in loader])
    samples = [sample for batch in loader for sample in batch['data_samples']]
    torch.testing.assert_close(got, encode([images[i]['inputs'] for i in range(len(images))]))
    for i, sample in enumerate(samples):
        wanted = images[i]['data_samples']
        for key in ('attr_label', 'obj_label', 'pair_label'):
            assert sample.get(key) == wanted.get(key)


def test_no_image_is_needed(layout, stored):
    wanted = read(layout, stored)[3]['inputs']
    (layout.root / 'images').rename(layout.root / 'gone')
    assert read(layout, stored)[3]['inputs'].equal(wanted)


def test_files_are_mapped_not_read(layout, stored):
    store = read(layout, stored).pipeline.transforms[0].store
    assert all(isinstance(shard, np.memmap) for shard in store.open())
    assert [len(shard) for shard in store.open()] == [5, 5, 2] and len(store) == 12
    assert len(pickle.dumps(store)) < 4000


@pytest.mark.parametrize('indices', [5, -3, [7, 0, 11]])
def test_a_subset_finds_its_own_features(layout, stored, indices):
    dataset = read(layout, stored, indices=indices)
    wanted = images_of(layout, indices=indices)
    got = torch.stack([sample['inputs'] for sample in dataset])
    torch.testing.assert_close(got, encode([sample['inputs'] for sample in wanted]))


def test_the_spelling_of_folders_does_not_matter(layout, stored):
    """MIT-States lies in folders with spaces, and its metadata has underscores."""
    (layout.root / 'images' / 'wet_cat').rename(layout.root / 'images' / 'wet cat')
    names = [sample_name(images_of(layout).get_data_info(i)) for i in range(12)]
    assert names == [name.decode() for name in FeatureStore(stored, 'train').names.tolist()]


def counting(calls):
    return lambda images: calls.append(len(images)) or encode(images)


@pytest.mark.parametrize('broken_after', [0, 1, 2, 4])
def test_a_broken_run_goes_on(layout, tmp_path, broken_after):
    paint_all(layout)
    calls = []

    def breaks(images):
        if len(calls) == broken_after:
            raise KeyboardInterrupt
        return counting(calls)(images)

    start_folder(tmp_path / 'f', FACTS)
    with pytest.raises(KeyboardInterrupt):
        write_phase(images_of(layout), breaks, tmp_path / 'f', 'train', batch_size=3)
    with pytest.raises(ValueError, match=r'not complete: \d of 3 shards are missing.*\n.*extract'):
        read(layout, tmp_path / 'f')
    again = []
    start_folder(tmp_path / 'f', FACTS)
    made = write_phase(images_of(layout), counting(again), tmp_path / 'f', 'train', batch_size=3)

    finished = 5 * (broken_after // 2)  # two batches a shard
    assert made == sum(again) == 12 - finished
    got = torch.stack([sample['inputs'] for sample in read(layout, tmp_path / 'f')])
    torch.testing.assert_close(got, encode([s['inputs'] for s in images_of(layout)]))
    assert write_phase(images_of(layout), counting(again), tmp_path / 'f', 'train') == 0


def test_parts_share_the_shards_and_a_lost_one_is_made_later(layout, tmp_path):
    facts_of_one = write_phase(images_of(layout), encode, _started(tmp_path / 'one'), 'train')
    root = _started(tmp_path / 'parts')

    made = [write_phase(images_of(layout), encode, root, 'train', part=(i, 3)) for i in (0, 2)]

    assert 0 < sum(made) < facts_of_one
    with pytest.raises(ValueError, match='1 of 3 shards are missing'):
        FeatureStore(root, 'train')
    assert sum(made) + write_phase(images_of(layout), encode, root, 'train') == facts_of_one
    assert sorted(path.name for path in (root / 'train').glob('*.npy')) == sorted(
        path.name for path in (tmp_path / 'one' / 'train').glob('*.npy'))


def _started(root):
    start_folder(root, FACTS)
    return root


def test_a_store_is_compared_with_its_checksums_once_and_again_when_a_file_changes(
        layout, stored, monkeypatch):
    sums = []
    monkeypatch.setattr('mmcluspro.features.store.checksum',
                        lambda array: sums.append(1) or checksum(array))
    first = FeatureStore(stored, 'train')
    FeatureStore(stored, 'train')
    assert len(sums) == 3
    path = sorted((stored / 'train').glob('*.npy'))[1]
    path.write_bytes(path.read_bytes())  # the same bytes, written again
    again = FeatureStore(stored, 'train')
    assert len(sums) == 4
    for name in first.names.tolist():
        assert np.array_equal(first[name.decode()], again[name.decode()])


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize('damage', [cut, flip, lambda path: path.write_bytes(b'')])
def test_a_damaged_shard_is_never_trusted(layout, stored, damage):
    path = sorted((stored / 'train').glob('*.npy'))[1]
    before = path.read_bytes()
    damage(path)

    with pytest.raises(ValueError, match=rf'{path.name}: it is damaged .*\n.*extract-features'):
        read(layout, stored)
    assert write_phase(images_of(layout), encode, stored, 'train') == 5
    assert path.read_bytes() == before


def test_a_half_written_shard_is_not_looked_at(layout, stored):
    path = sorted((stored / 'val').glob('*.npy'))[0]
    path.rename(path.with_name(f'{path.name}.host-1-0123abcd.part'))
    with pytest.raises(ValueError, match='1 of 1 shards are missing'):
        read(layout, stored, 'val')


def test_a_whole_shard_is_summed_once(layout, stored, monkeypatch):
    sums = []
    monkeypatch.setattr('mmcluspro.features.store.checksum',
                        lambda array: sums.append(1) or checksum(array))
    read(layout, stored)
    assert len(sums) == 3


def during(monkeypatch, happens):
    """Does something else while the next file is written but has not got its name."""
    fsync = os.fsync

    def interrupted(number):
        monkeypatch.setattr(os, 'fsync', fsync)
        fsync(number)
        happens()

    monkeypatch.setattr(os, 'fsync', interrupted)


@pytest.mark.parametrize('change', [0, 1e-6])
def test_two_writers_end_in_one_folder(layout, tmp_path, monkeypatch, change):
    """The second does all its work within one step of the first, and may round otherwise."""
    paint_all(layout)
    images, root = images_of(layout), tmp_path / 'f'
    second = lambda: write_phase(images, lambda x: encode(x) + change, root, 'train')

    def first(batch):
        if not list(root.glob('*/*.npy')):
            during(monkeypatch, second)
        return encode(batch)

    start_folder(root, FACTS)
    assert write_phase(images, first, root, 'train') == 12

    assert sorted(path.name[:5] for path in (root / 'train').iterdir()) == [
        '00000', '00001', '00002', 'names']
    got = torch.stack([sample['inputs'] for sample in read(layout, root)])
    torch.testing.assert_close(got, encode([sample['inputs'] for sample in images]))


def test_the_first_of_two_decides_what_the_folder_holds(tmp_path, monkeypatch):
    during(monkeypatch, lambda: start_folder(tmp_path, FACTS))
    with pytest.raises(ValueError, match='fingerprint was 7 and is 8'):
        start_folder(tmp_path, {**FACTS, 'fingerprint': 8})
    during(monkeypatch, lambda: PhaseWriter(tmp_path, 'val', ['a', 'b']))
    with pytest.raises(ValueError, match="image 0 was 'a' and is 'b'"):
        PhaseWriter(tmp_path, 'val', ['b', 'a'])
    assert not list(tmp_path.rglob('*.part'))


def test_unfinished_files_of_dead_processes_go(layout, stored):
    dead = subprocess.Popen([sys.executable, '-c', ''])
    dead.wait()
    names = {
        f'00000-12345678.npy.{HOST}-{dead.pid}-0123abcd.part': True,
        f'names.json.{HOST}-{os.getpid()}-0123abcd.part': False,
        'names.json.else-where-1-0123abcd.part': False,
        'names.json.else-where-2-0123abcd.part': True,
        '00000.part': True,
    }
    for folder in (stored, stored / 'train'):
        for name in names:
            (folder / name).touch()
        for name in ('names.json.else-where-2-0123abcd.part', '00000.part'):
            os.utime(folder / name, (0, 0))

    assert write_phase(images_of(layout), encode, stored, 'train') == 0

    for folder in (stored, stored / 'train'):
        assert {name for name in names if not (folder / name).exists()} == {
            name for name, goes in names.items() if goes}


def test_json_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    there = []
    monkeypatch.setattr(os, 'fsync', lambda number: there.append(
        (os.fstat(number).st_size > 0, (tmp_path / 'features.json').exists())))
    start_folder(tmp_path, FACTS)
    assert there[0] == (True, False) and (tmp_path / 'features.json').exists()


def test_file_systems_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError
    monkeypatch.setattr(os, 'link', refuse)
    start_folder(tmp_path, FACTS)
    assert [path.name for path in tmp_path.iterdir()] == ['features.json']
    start_folder(tmp_path, FACTS)


@pytest.mark.parametrize('content', ['', '["wet_cat/tra', 'null', '\xff'])
def test_damaged_json_is_named(layout, stored, content):
    for path in (stored / 'train' / 'names.json', stored / 'features.json'):
        path.write_bytes(content.encode('latin-1'))
        message = (rf'{path}: it .*\. Delete the folder {path.parent} and make its '
                   r'features again:\n.*extract-features CONFIG --out ' + str(stored))
        with pytest.raises(ValueError, match=message):
            read(layout, stored)
        with pytest.raises(ValueError, match=message):
            start_folder(stored, FACTS)
            write_phase(images_of(layout), encode, stored, 'train')
        path.unlink()
        with pytest.raises(ValueError, match=rf'{path} is missing, .*Delete the folder'):
            start_folder(stored, FACTS)
            write_phase(images_of(layout), encode, stored, 'train')


def test_a_changed_name_or_fact_does_not_fit_its_checksum(layout, stored):
    for path in (stored / 'train' / 'names.json', stored / 'features.json'):
        text = path.read_text()
        assert '"checksum"' in text
        changed = text.replace('train', 'trbin', 1)
        path.write_text(changed.replace('shard_size": ', 'shard_size": 1'))
        with pytest.raises(ValueError, match='does not fit its checksum'):
            read(layout, stored)
        path.write_text(text)
    assert len(read(layout, stored)) == 12


def test_lists_of_before_checksums_are_read(layout, stored):
    path = stored / 'train' / 'names.json'
    path.write_text(json.dumps(json.loads(path.read_text())['names']))
    assert len(read(layout, stored)) == 12


def test_damaged_json_is_made_again_when_no_shard_needs_it(layout, tmp_path):
    start_folder(tmp_path, FACTS)
    PhaseWriter(tmp_path, 'train', ['a'])
    for path in (tmp_path / 'features.json', tmp_path / 'train' / 'names.json'):
        path.write_text('')
    start_folder(tmp_path, FACTS)
    assert write_phase(images_of(layout), encode, tmp_path, 'train') == 12
    assert len(read(layout, tmp_path)) == 12


def relist(layout, change):
    rows = [dict(row) for row in layout.rows]
    change(rows)
    write_layout(layout.root, rows, layout.pairs)


@pytest.mark.parametrize('change, message', [
    (lambda rows: rows.insert(0, rows.pop(1)),
     "image 0 was 'wet_cat/train0.png' and is 'wet_cat/train1.png'"),
    (lambda rows: rows.pop(2), '12 images were stored, the data has 11; image 2 was'),
    (lambda rows: rows[5].update(image='other.png'), "image 5 was 'wet_Dog.Big/train2.png' and is"),
    (lambda rows: rows.append(dict(rows[0], image='new.png')),
     'has 13; the first 12 agree'),
])
def test_a_changed_list_is_refused(layout, stored, change, message):
    relist(layout, change)
    with pytest.raises(ValueError, match=f'train is of another image list: .*{message}'):
        read(layout, stored)
    names = [row['image'] for row in read_rows(layout) if row['set'] == 'train']
    with pytest.raises(ValueError, match=f'train is of another image list: .*{message}'):
        PhaseWriter(stored, 'train', names)


def read_rows(layout):
    return torch.load(layout.metadata, weights_only=True)


def test_a_subset_with_an_unknown_image_is_refused(layout, stored):
    relist(layout, lambda rows: rows[1].update(image='other.png'))
    assert len(read(layout, stored, indices=[0, 2])) == 2
    with pytest.raises(ValueError, match=r"image 'other\.png' is not in it"):
        read(layout, stored, indices=[0, 1])


def test_another_pipeline_is_refused(layout, stored):
    pipeline = [PIPELINE[0], dict(type='RandomFlip', prob=0.5), PIPELINE[1]]
    with pytest.raises(ValueError, match='made with another pipeline .* cannot be augmented'):
        UTZappos(str(layout.root), features=str(stored), pipeline=pipeline)


@pytest.mark.parametrize('field, value, message', [
    ('backbone', dict(type='Sum', width=4), r'backbone\.width was 3 and is 4'),
    ('fingerprint', 8, 'fingerprint was 7 and is 8'),
    ('dtype', 'float16', "dtype was 'float32' and is 'float16'"),
    ('pipeline', PIPELINE[1:], 'pipeline was'),
    ('preprocessor', dict(mean=[1]), r'preprocessor\.mean was None and is \[1\]'),
])
def test_other_facts_are_refused_when_a_run_goes_on(stored, field, value, message):
    with pytest.raises(ValueError, match=f'features of something else: {message}'):
        start_folder(stored, {**FACTS, field: value})
    start_folder(stored, FACTS)


def test_missing_folders_name_the_command(layout, tmp_path, stored):
    message = r'no features in .*nowhere\. Make them first:\n.*extract-features CONFIG --out .*'
    with pytest.raises(FileNotFoundError, match=message + 'nowhere'):
        read(layout, tmp_path / 'nowhere')
    (stored / 'val' / 'names.json').unlink()
    with pytest.raises(FileNotFoundError, match="no features of phase 'val'.*\n.*--out"):
        read(layout, stored, 'val')
    (stored / 'features.json').write_text('{')
    with pytest.raises(ValueError, match=r'features\.json: it is not JSON, or damaged'):
        read(layout, stored)


def test_unreadable_images_are_named_and_nothing_is_lost(layout, tmp_path):
    for number in (6, 8):
        (layout.root / 'images' / layout.rows[number]['image']).write_bytes(b'no picture')
    start_folder(tmp_path / 'f', FACTS)
    with pytest.raises(ValueError, match=r'2 of 5 images(.|\n)*Faux\.Fur_cat/train0\.png(.|\n)*'
                       r'Faux\.Fur_cat/train2\.png'):
        write_phase(images_of(layout), encode, tmp_path / 'f', 'train')
    assert len(list((tmp_path / 'f' / 'train').glob('*.npy'))) == 1
    paint_all(layout)
    assert write_phase(images_of(layout), encode, tmp_path / 'f', 'train') == 7


@pytest.mark.parametrize('dtype, value, message', [
    ('float32', float('nan'), 'not finite; are the weights'),
    ('float16', 1e6, 'not finite in float16; use --dtype float32'),
])
@pytest.mark.filterwarnings('ignore:overflow')
def test_features_that_are_not_finite_are_refused(tmp_path, dtype, value, message):
    start_folder(tmp_path, {**FACTS, 'dtype': dtype})
    writer = PhaseWriter(tmp_path, 'val', ['a', 'b'])
    with pytest.raises(ValueError, match=f"The feature of 'b' is {message}"):
        writer.write(range(2), np.array([[1, 1], [1, value]], dtype=np.float32))
    assert not list((tmp_path / 'val').glob('*.npy'))


def test_half_precision_is_read_as_single(tmp_path):
    start_folder(tmp_path, {**FACTS, 'dtype': 'float16'})
    writer = PhaseWriter(tmp_path, 'val', ['a', 'b'])
    writer.write(range(2), np.array([[0.1, 1], [2, 3]], dtype=np.float32))
    got = FeatureStore(tmp_path, 'val')['a']
    assert got.dtype == np.float32 and got[0] == np.float16(0.1)


def test_progress_counts_new_and_stored_images(layout, tmp_path):
    start_folder(tmp_path / 'f', FACTS)
    for made in (12, 0):
        progress = Progress('features', 12)
        write_phase(images_of(layout), encode, tmp_path / 'f', 'train', progress=progress)
        assert (progress.done, progress.made) == (12, made)


def test_names_of_files_tables_and_drawn_pictures(layout):
    table = layout.root / 'images' / 'table.csv'
    table.write_text('image,attribute,object,split\n' + ''.join(
        f'{row["image"]},{row["attr"]},{row["obj"]},{row["set"]}\n' for row in layout.rows))
    from_table = TableCZSL(str(layout.root / 'images'), table='table.csv')
    assert sample_name(from_table.get_data_info(0)) == layout.rows[0]['image']
    drawn = [ShapesCZSL().get_data_info(i) for i in (0, 1)]
    other = dict(drawn[0], img=drawn[0]['img'] ^ (np.arange(3) == 1))
    assert len({sample_name(info) for info in (*drawn, other)}) == 3


def test_differences_name_the_field():
    stored = json.loads('{"a": {"b": 1, "c": [1, 2]}, "d": [{"e": 1}, {"e": 2}]}')
    asked = json.loads('{"a": {"b": 1, "c": [1, 3]}, "d": [{"e": 1}, {"e": 5}]}')
    assert list(differences(stored, stored, 'x')) == []
    assert list(differences(stored, asked, 'x')) == [
        'x.a.c was [1, 2] and is [1, 3]', 'x.d[1].e was 2 and is 5']


def test_a_shard_that_is_a_pickle_runs_nothing(tmp_path):
    owned = tmp_path / 'owned'
    path = tmp_path / 'features' / 'train' / '00000-0123abcd.npy'
    path.parent.mkdir(parents=True)
    for raw in (f"cos\nmkdir\n(S'{owned}'\ntR.".encode(), b'\x93NUMPY\x01\x00junk'):
        path.write_bytes(raw)
        with pytest.raises(FileError, match=r'00000-0123abcd\.npy: it is damaged'):
            read_shard(path, 4)
    assert not owned.exists()
