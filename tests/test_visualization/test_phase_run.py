from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.dataset import default_collate
from PIL import Image

from mmcluspro import load
from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.launch import read_config
from mmcluspro.evaluation import CZSLMetric
from mmcluspro.models import Candidates
from mmcluspro.visualization.options import find_primitive, most_frequent, split_by_branch
from mmcluspro.visualization.phase import evenly, picture, run_phase

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'


@pytest.fixture(scope='module')
def model(baseline):
    return load(baseline)


@pytest.fixture(scope='module')
def dataset(model):
    return model.dataset('val')


@pytest.mark.parametrize('batch_size', [7, 64])
def test_answers_and_features_are_those_of_the_model(model, dataset, batch_size):
    batches = list(run_phase(model, dataset, batch_size=batch_size))

    network = model.network
    data = network.data_preprocessor(default_collate([dataset[i] for i in range(len(dataset))]))
    with torch.no_grad():
        samples = network.predict(data['inputs'], data['data_samples'],
                                  {'closed': Candidates.from_space(dataset.space)})
        feats = network.extract_feat(data['inputs'])
    answer = torch.cat([batch.answer for batch in batches])
    assert answer.tolist() == [int(sample.closed_score.argmax()) for sample in samples]
    assert torch.cat([batch.index for batch in batches]).tolist() == list(range(len(dataset)))
    for branch, expected in feats.primitives.items():
        got = torch.cat([batch.features[branch] for batch in batches])
        torch.testing.assert_close(got, expected / expected.norm(dim=1, keepdim=True))
        label = torch.cat([batch.labels[branch] for batch in batches])
        assert label.tolist() == [getattr(sample, f'{branch}_label') for sample in samples]

    scores = torch.stack([sample.closed_score for sample in samples])
    targets = [int(sample.pair_label) for sample in samples]
    numbers = CZSLMetric.calculate(scores, targets, dataset.space.seen, dataset.space.pairs)
    right = dataset.space.pairs[answer] == dataset.space.pairs[torch.tensor(targets)]
    assert 100 * right.float().mean(dim=0).numpy() == pytest.approx(
        [numbers['attr_acc'], numbers['obj_acc']])


@pytest.mark.parametrize(('bias', 'seen'), [(1000.0, False), (-1000.0, True)])
def test_a_large_bias_takes_one_side_only(model, dataset, bias, seen):
    batch, = run_phase(model, dataset, [3, 5, 8], bias)

    assert batch.index.tolist() == [3, 5, 8]
    assert (dataset.space.seen[batch.answer] == seen).all()


def test_training_images_come_without_augmentation(model):
    dataset = model.dataset('train')

    for index in (0, 11):
        pixels = dataset[index]['inputs'].numpy()
        np.testing.assert_array_equal(pixels.transpose(1, 2, 0)[..., ::-1],
                                      picture(dataset, index))
        row = dataset.get_data_info(index)['row']
        np.testing.assert_array_equal(picture(dataset, index), dataset.images[row])


def test_pictures_of_files_are_cut_to_the_middle_and_shrunk(tmp_path):
    pixels = np.zeros((40, 80, 3), np.uint8)
    pixels[:, 20:60] = 200
    Image.fromarray(pixels).save(tmp_path / 'a.png')
    (tmp_path / 'b.png').write_text('no image')
    names = ['a.png', 'b.png']
    files = type('Files', (), {
        'get_data_info': lambda self, i: dict(img_path=str(tmp_path / names[i]))})()

    np.testing.assert_array_equal(picture(files, 0), pixels)
    assert (picture(files, 0, side=10) == 200).all() and picture(files, 0, 10).shape == (10, 10, 3)
    with pytest.raises(ValueError, match=r'b\.png cannot be read'):
        picture(files, 1)


@pytest.mark.parametrize(('total', 'count'), [(1, 1), (10, 3), (10, 10), (10, 50), (7, None)])
def test_evenly_spread_indices(total, count):
    indices = evenly(total, count)

    assert len(set(indices)) == len(indices) == min(count or total, total)
    assert indices == sorted(indices) and indices[0] >= 0 and indices[-1] < total


@pytest.mark.parametrize('missing', ['data', 'preparation'])
def test_a_checkpoint_that_names_no_data_says_so(model, missing):
    spec = {key: value for key, value in model.spec.items() if key != missing}
    other = replace(model, spec=spec)

    with pytest.raises(ValueError, match='names no dataset of mmcluspro.*--config'):
        other.dataset('val')


def test_a_config_of_the_users_is_built(model):
    cfg = read_config(CONFIGS / 'baseline_shapes.py')
    expected, got = model.dataset('val'), model.dataset('val', cfg)
    assert len(got) == len(expected) and got[3]['inputs'].equal(expected[3]['inputs'])
    cfg.val_dataloader = None
    with pytest.raises(ValueError, match='no val_dataloader'):
        model.dataset('val', cfg)


SPACE = CompositionSpace(['orange', 'wet'], ['cat', 'orange'], [[0, 0], [1, 1]], [True, True])


def test_names_are_found_in_both_branches():
    assert find_primitive(SPACE, 'wet') == [('attr', 1)]
    assert find_primitive(SPACE, 'orange') == [('attr', 0), ('obj', 1)]
    assert find_primitive(SPACE, 'obj:orange') == [('obj', 1)]
    assert split_by_branch(SPACE, ['cat', 'wet', 'cat', 'attr:orange']) == {
        'attr': [1, 0], 'obj': [0]}


@pytest.mark.parametrize(('name', 'words'), [
    ('wett', "'wett' is not an attribute or object .* Did you mean wet"),
    ('attr:cat', "'cat' is not an attribute of the checkpoint"), ('xyz', 'It knows, for example')])
def test_an_unknown_name_gets_a_hint(name, words):
    with pytest.raises(ValueError, match=words):
        find_primitive(SPACE, name)


@pytest.mark.parametrize(('count', 'expected'), [(1, [2]), (2, [0, 2]), (9, [0, 2, 4])])
def test_most_frequent_classes(count, expected):
    labels = torch.tensor([2, 2, 2, 0, 0, 4])

    assert most_frequent(labels, 6, count) == expected
