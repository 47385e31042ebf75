import pickle
import zlib
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from mmcluspro.datasets import ShapesCZSL, UTZappos, build_space
from mmcluspro.datasets.shapes import VERSIONS, Look, Version, phase_lists, plan, split_pairs
from mmcluspro.datasets.shapes import dataset as cache
from mmcluspro.registry import DATASETS


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A version of a few pictures, cached in a folder of its own."""
    version = Version('tiny', ('red', 'striped', 'small'), ('star', 'moon', 'key'), 9,
                      train=(0.5, 0.5), val=(1, 1), test=(1, 2), look=Look())
    monkeypatch.setitem(VERSIONS, 'tiny', version)
    monkeypatch.setenv('MMCLUSPRO_CACHE', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


@pytest.mark.parametrize('name', sorted(VERSIONS))
def test_split_keeps_the_promises_of_the_issue(name):
    split = split_pairs(name)
    sets = {part: set(pairs) for part, pairs in split.items()}
    total = sum(map(len, split.values()))

    assert not sets['seen'] & (sets['val'] | sets['test']) and not sets['val'] & sets['test']
    assert 0.57 < len(split['seen']) / total < 0.63
    assert abs(len(split['val']) - len(split['test'])) <= 1
    assert {a for a, _ in sets['seen']} == set(VERSIONS[name].attributes)
    assert {o for _, o in sets['seen']} == set(VERSIONS[name].objects)
    assert len(VERSIONS[name].attributes) >= 10 and len(VERSIONS[name].objects) >= 10


@pytest.mark.parametrize('name', sorted(VERSIONS))
def test_evaluation_has_seen_and_unseen_pairs_and_training_only_seen(name):
    split, lists = split_pairs(name), phase_lists(name)

    assert set(lists['train']) == set(split['seen'])
    for phase in ('val', 'test'):
        assert set(split[phase]) <= set(lists[phase])
        assert set(lists[phase]) - set(split[phase]) <= set(split['seen'])
        assert len(set(lists[phase]) & set(split['seen'])) > 20


def test_large_is_long_tailed_with_one_to_five_pictures_a_pair():
    version = VERSIONS['shapes-large-v1']
    counts = Counter(row[1:3] for row in plan('shapes-large-v1') if row[0] == 'train')

    sizes = Counter(counts.values())
    assert set(sizes) == {1, 2, 3, 4, 5}
    assert sizes[1] > sizes[3] > sizes[5]
    by_object = Counter()
    for (_, obj), count in counts.items():
        by_object[obj] += count
    assert max(by_object.values()) > 1.5 * min(by_object.values())
    assert len(version.attributes) >= 30 and len(version.objects) >= 40


def test_versions_of_one_split_share_pairs():
    for other in ('shapes-easy-v1', 'shapes-hard-v1', 'shapes-v2'):
        assert split_pairs('shapes-v1') == split_pairs(other)
    assert split_pairs('shapes-large-v1') == split_pairs('shapes-large-v2')


@pytest.mark.parametrize('name', ['shapes-v2', 'shapes-large-v2'])
def test_validation_is_as_large_as_the_test(name):
    phases = Counter(row[0] for row in plan(name))
    assert phases['val'] == phases['test'] > 1000


def test_samples_look_like_loaded_files(tiny):
    dataset = DATASETS.build(dict(type='mmcluspro.ShapesCZSL', version='tiny', phase='train'))
    info = dataset.get_data_info(0)
    row = plan('tiny')[info['row']]

    assert info['img'].dtype == np.uint8 and info['img'].shape == (48, 48, 3)
    assert info['img_shape'] == info['ori_shape'] == (48, 48)
    assert np.array_equal(info['img'][..., ::-1], dataset.images[info['row']])
    assert (dataset.space.attributes[info['attr_label']],
            dataset.space.objects[info['obj_label']]) == row[1:3]
    assert dataset.space.pairs[info['pair_label']].tolist() == [info['attr_label'],
                                                                info['obj_label']]
    assert dataset.metainfo['classes'][info['gt_label']] == ' '.join(row[1:3])
    assert {info['attr_mode'], info['obj_mode']} <= {0, 1}


def test_space_of_a_config_is_the_space_of_the_dataset(tiny):
    cfg = dict(type='mmcluspro.ShapesCZSL', version='tiny', seed=3)
    for phase in ('train', 'val', 'test'):
        assert build_space(cfg, phase) == DATASETS.build({**cfg, 'phase': phase}).space


def test_seed_changes_pictures_and_not_labels(tiny):
    one, two, again = (ShapesCZSL('tiny', seed=seed) for seed in (0, 1, 0))

    assert not np.array_equal(one.images, two.images)
    assert np.array_equal(one.images, again.images)
    labels = [[(info['attr_label'], info['obj_label']) for info in map(data.get_data_info, range(
        len(data)))] for data in (one, two)]
    assert labels[0] == labels[1]


def test_phases_share_no_picture(tiny):
    images = ShapesCZSL('tiny').images

    assert len({image.tobytes() for image in images}) == len(images)


def test_pickles_without_pixels_and_reads_them_again(tiny):
    dataset = ShapesCZSL('tiny')
    copy = pickle.loads(pickle.dumps(dataset))

    assert len(pickle.dumps(dataset)) < dataset.images.nbytes / 4
    assert np.array_equal(copy.get_data_info(1)['img'], dataset.get_data_info(1)['img'])


@pytest.mark.parametrize('damage', ['bytes', 'cut', 'facts'])
def test_damaged_cache_is_drawn_again(tiny, damage):
    before = np.array(ShapesCZSL('tiny').images)
    file = next(tiny.glob('*.npy'))
    raw = bytearray(file.read_bytes())
    if damage == 'bytes':
        raw[-5] ^= 255
        file.write_bytes(raw)
    elif damage == 'cut':
        file.write_bytes(raw[:len(raw) // 2])
    else:
        file.with_suffix('.json').write_text('{"crc32": 1')

    after = np.array(ShapesCZSL('tiny').images)

    assert np.array_equal(before, after)
    assert np.array_equal(np.load(file), before)
    assert not list(tiny.glob('*.part'))


def test_cache_is_used(tiny, monkeypatch):
    first = np.array(ShapesCZSL('tiny').images)
    monkeypatch.setattr(cache, 'draw_image', None)

    assert np.array_equal(ShapesCZSL('tiny', phase='val').images, first)


def test_folder_that_cannot_be_written_is_no_obstacle(tiny, tmp_path):
    (tmp_path / 'file').write_text('')
    dataset = ShapesCZSL('tiny', data_root=str(tmp_path / 'file' / 'cache'))
    copy = pickle.loads(pickle.dumps(dataset))

    assert np.array_equal(copy.get_data_info(0)['img'], dataset.get_data_info(0)['img'])


def test_exported_files_read_back_alike(tiny, tmp_path):
    ShapesCZSL('tiny').export(tmp_path / 'files')

    for phase in ('train', 'val', 'test'):
        drawn = ShapesCZSL('tiny', phase=phase)
        read = UTZappos(data_root=str(tmp_path / 'files'), phase=phase)
        assert read.space == drawn.space and len(read) == len(drawn)
        key = lambda info, image: (info['attr_label'], info['obj_label'], info['pair_label'],
                                   zlib.crc32(image))
        ours = [key(info, np.ascontiguousarray(info['img'][..., ::-1]))
                for info in map(drawn.get_data_info, range(len(drawn)))]
        theirs = [key(info, np.asarray(Image.open(info['img_path'])).copy())
                  for info in map(read.get_data_info, range(len(read)))]
        assert sorted(ours) == sorted(theirs)


@pytest.mark.parametrize('options, message', [
    (dict(version='shapes-v0'), r"version must be one of .*shapes-v1.* got 'shapes-v0'"),
    (dict(seed=-1), 'seed must be an integer of at least 0, got -1'),
    (dict(phase='dev'), "phase must be .* got 'dev'"),
])
def test_wrong_arguments_name_field_and_value(options, message):
    with pytest.raises(ValueError, match=message):
        ShapesCZSL(**options)
