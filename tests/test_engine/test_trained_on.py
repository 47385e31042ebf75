"""A checkpoint knows its training data: no other is resumed, and tests on it are warned of."""
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.hooks import Hook
from PIL import Image

from mmcluspro.artefact.save import published
from mmcluspro.artefact.trained_on import FIELD, TrainedOn
from mmcluspro.datasets import TableCZSL
from mmcluspro.utils.safe_load import safe_load

WORDS = ['red', 'blue', 'green', 'striped'], ['star', 'circle', 'square', 'ring']


@pytest.fixture(scope='module')
def photos(tmp_path_factory):
    folder, generator = tmp_path_factory.mktemp('photos'), np.random.default_rng(0)
    for attr, obj in itertools.product(*WORDS):
        (folder / f'{attr}_{obj}').mkdir()
        for i in range(6):
            pixels = generator.integers(0, 256, (48, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f'{attr}_{obj}' / f'{i}.png')
    return folder


def split(photos, seed, phase):
    return TableCZSL(data_root=str(photos), make_split=dict(seed=seed), phase=phase)


def options(photos, seed):
    data = dict(type='mmcluspro.TableCZSL', data_root=str(photos), make_split=dict(seed=seed))
    pipeline = [dict(type='LoadImageFromFile'), dict(
        type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label'])]
    found = {'model.space': dict(data, _delete_=True), 'train_cfg.max_epochs': 1}
    for phase in ('train', 'val', 'test'):
        found[f'{phase}_dataloader.dataset'] = dict(
            data, _delete_=True, phase=phase, pipeline=pipeline)
    return found


@pytest.fixture(scope='module')
def trained(run, photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp('trained')
    run(folder, **options(photos, 0)).train()
    return folder


def warnings(runner, words='was trained on'):
    text = next(Path(runner.log_dir).glob('*.log')).read_text()
    return [line for line in text.splitlines() if words in line]


def images(*datasets):
    return {dataset.get_data_info(i)['name'] for dataset in datasets for i in range(len(dataset))}


def named(space, seen):
    return {(space.attributes[a], space.objects[o]) for a, o in space.pairs[space.seen == seen]}


def overlap(photos, before, now):
    """How many test images and unseen pairs of one split another one has trained on."""
    learnt, test = split(photos, before, 'train'), split(photos, now, 'test')
    return (len(images(learnt) & images(test)), len(test),
            len(named(learnt.space, True) & named(test.space, False)),
            len(named(test.space, False)))


@pytest.mark.slow
def test_another_split_is_not_resumed(run, photos, trained):
    before = (trained / 'epoch_1.pth').read_bytes()
    new = len(images(split(photos, 3, 'train')) - images(split(photos, 0, 'train')))
    runner = run(trained, resume=True, load_from=str(trained / 'epoch_1.pth'),
                 **{**options(photos, 3), 'train_cfg.max_epochs': 2})
    with pytest.raises(ValueError, match=rf'and {new} of \d+ images are new .* load_from=FILE'):
        runner.train()
    assert new > 0 and (trained / 'epoch_1.pth').read_bytes() == before


@pytest.mark.slow
def test_the_same_split_is_resumed_and_tested_without_a_word(run, photos, trained, tmp_path):
    runner = run(tmp_path, resume=True, load_from=str(trained / 'epoch_1.pth'),
                 **{**options(photos, 0), 'train_cfg.max_epochs': 2})
    runner.train()
    runner.load_checkpoint(str(tmp_path / 'epoch_2.pth'))
    runner.test()
    assert warnings(runner) == []


@pytest.mark.slow
def test_a_test_on_training_images_is_warned_of(run, photos, trained, tmp_path):
    runner = run(tmp_path, load_from=str(trained / 'epoch_1.pth'), **options(photos, 3))
    runner.test()
    a, b, c, d = overlap(photos, 0, 3)
    assert a and c
    line, = warnings(runner)
    assert f'was trained on {a} of {b} images (by name: ' in line
    assert f'and {c} of {d} unseen pairs (' in line and 'of the test data' in line


@pytest.mark.slow
def test_what_the_weights_started_from_counts(run, photos, trained, tmp_path):
    runner = run(tmp_path, load_from=str(trained / 'epoch_1.pth'), **options(photos, 3))
    told = []
    start = Hook()
    start.before_train_epoch = lambda runner: told.append(len(warnings(runner)))
    runner.register_hook(start)
    runner.train()
    runner.test()
    assert told == [2] and len(warnings(runner)) == 2  # val and test: at the start, and once

    record = TrainedOn.read(safe_load(tmp_path / 'epoch_1.pth')['meta'])
    both = [split(photos, seed, 'train') for seed in (0, 3)]
    assert len(record.images) == len(images(*both)) > len(both[0])
    assert record.digest == TrainedOn.of(both[1]).digest
    assert set(TrainedOn.of(both[0]).pairs) <= set(record.pairs)
    # A run that is resumed still knows.
    again = run(tmp_path, resume=True, load_from=str(tmp_path / 'epoch_1.pth'),
                **{**options(photos, 3), 'train_cfg.max_epochs': 2})
    again.train()
    later = TrainedOn.read(safe_load(tmp_path / 'epoch_2.pth')['meta'])
    assert np.array_equal(later.images, record.images) and later.digest == record.digest


@pytest.mark.slow
def test_a_checkpoint_without_images_knows_its_pairs(run, photos, trained, tmp_path):
    """Those of before, and published ones."""
    saved = safe_load(trained / 'epoch_1.pth')
    assert FIELD not in published(saved, 'epoch_1.pth')['meta']
    del saved['meta'][FIELD]
    torch.save(saved, tmp_path / 'epoch_1.pth')
    runner = run(tmp_path, load_from=str(tmp_path / 'epoch_1.pth'), **options(photos, 3))
    runner.test()
    line, = warnings(runner)
    _, _, c, d = overlap(photos, 0, 3)
    assert f'was trained on {c} of {d} unseen pairs (' in line
    again = run(tmp_path, resume=True, load_from=str(tmp_path / 'epoch_1.pth'),
                **options(photos, 3))
    with pytest.raises(ValueError, match='The training data is not that of the checkpoint'):
        again.train()


def test_the_digest_is_of_images_and_labels_in_any_order(photos):
    data = split(photos, 0, 'train')
    samples = [data.get_data_info(i) for i in range(len(data))]

    def digest(rows):
        data.get_data_info = rows.__getitem__
        return TrainedOn.of(data).digest

    whole = digest(samples)
    assert digest(samples[::-1]) == whole
    for field, value in (('name', 'other.png'), ('obj_label', 9)):
        assert digest([dict(samples[0], **{field: value}), *samples[1:]]) != whole


@pytest.mark.parametrize('saved', [
    3, {}, dict(pairs=torch.ones(2), images=torch.ones(2).long(), digest=''),
    dict(pairs=torch.ones(2).long(), images=torch.ones(2, 2).long(), digest=''),
    dict(pairs=torch.ones(2).long(), images=torch.ones(2).long(), digest=None)])
def test_a_damaged_record_is_refused(saved):
    with pytest.raises(ValueError, match=r'meta\.trained_on of the checkpoint must hold'):
        TrainedOn.read({FIELD: saved})
    assert TrainedOn.read({}) is None
