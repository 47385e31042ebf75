"""Stored features that are refused, and what they are made from."""
import json

import numpy as np
import pytest
import torch
from torch import nn

from mmcluspro.errors import FileError
from mmcluspro.features import source
from mmcluspro.features.cached import FeaturePreprocessor
from mmcluspro.features.source import _digests, _resolve, build_frozen, one_vector
from mmcluspro.features.store import FeatureStore, read_json, sample_name, write_facts
from mmcluspro.utils.digest import checksum

FACTS = dict(backbone={}, weights={}, fingerprint=1, shard_size=2, pipeline=[], preprocessor={})


@pytest.mark.parametrize('content, kind, words', [
    (['a'], dict, 'it holds a list'), (dict(names=None), list, 'it holds a NoneType'),
    (dict(names=['a', 3]), list, 'it holds other values than names'),
    (dict(FACTS, shard_size=0), dict, 'shard_size.*its value is 0'),
    (dict(FACTS, fingerprint=True), dict, 'fingerprint.*its value is True'),
    (dict(FACTS, pipeline={}), dict, 'pipeline.*its value is {}'),
])
def test_facts_and_names_are_checked(content, kind, words, tmp_path):
    path = tmp_path / 'x.json'
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match=rf'(?s)x\.json.*{words}.*Delete the folder'):
        read_json(path, kind, tmp_path)


def test_images_have_names_of_their_own():
    image = np.zeros((2, 2, 3), np.uint8)
    assert sample_name(dict(name='a', img=image)) == 'a'
    assert sample_name(dict(img=image, row=4)) == f'4-{checksum(image)}'
    assert sample_name(dict(img_path='b.jpg')) == 'b.jpg'


def store(folder, shards, names=('a', 'b', 'c')):
    (folder / 'train').mkdir()
    write_facts(folder / 'features.json', FACTS)
    write_facts(folder / 'train' / 'names.json', list(names))
    for number, shard in enumerate(shards):
        np.save(folder / 'train' / f'{number:05}-{checksum(shard)}.npy', shard)
    return FeatureStore(folder, 'train')


def test_shards_agree_and_know_their_images(tmp_path):
    found = store(tmp_path, [np.eye(2, 4, dtype=np.float16), np.ones((1, 4), np.float16)])
    assert found['b'].tolist() == [0, 1, 0, 0] and found['c'].dtype == np.float32
    with pytest.raises(ValueError, match="train has no feature of image 'd'. Make the features of "
                       'this image list in another folder'):
        found['d']


@pytest.mark.parametrize('second', [np.ones((1, 5), np.float32), np.ones((1, 4), np.float16)])
def test_shards_that_differ_are_refused(second, tmp_path):
    with pytest.raises(ValueError, match='train differ in width or dtype. Delete the folder and '
                       'make them again:\n  mmcluspro extract-features'):
        store(tmp_path, [np.ones((2, 4), np.float32), second])


def test_a_backbone_gives_one_vector_per_image():
    assert one_vector(torch.ones(2, 3), None, 'ResNet').shape == (2, 3)
    with pytest.raises(ValueError, match=r'ResNet returns features of shape \(2, 3, 4, 4\), but '
                       'one vector per image is stored. Wrap it in mmcluspro.ProjectedBackbone'):
        one_vector(torch.ones(2, 3, 4, 4), None, 'ResNet')


def test_any_module_can_be_a_frozen_backbone(monkeypatch):
    torch.manual_seed(0)
    tower = nn.Linear(2, 2)
    monkeypatch.setattr(source.MODELS, 'build', lambda cfg: tower)
    built, stamp, learns = build_frozen(dict(type='own.Tower'))
    assert built is tower and learns == ['weight', 'bias'] and not tower.training
    assert not any(p.requires_grad for p in tower.parameters()) and isinstance(stamp, int)


def test_digests_are_those_of_files_that_are_here(tmp_path):
    path = tmp_path / 'a.pt'
    path.write_text('x')
    cfg = dict(pretrained=str(path), inner=dict(checkpoint=str(tmp_path / 'gone.pt'), other='x'))
    assert [name for name, _ in _digests(cfg)] == [str(path)]


def test_a_backbone_of_no_registry_is_named():
    with pytest.raises(ValueError, match="backbone.type='no_package.Tower' is not registered"):
        _resolve(dict(type='no_package.Tower'))


@pytest.mark.parametrize('inputs', [
    torch.ones(2, 3), [torch.ones(3), torch.ones(3)], (torch.ones(3), torch.ones(3))])
def test_features_are_stacked_and_not_normalised(inputs):
    prepare = FeaturePreprocessor(mean=[10.0] * 3, std=[2.0] * 3)
    assert prepare(dict(inputs=inputs))['inputs'].equal(torch.ones(2, 3))
    images = prepare(dict(inputs=[torch.full((3, 2, 2), 12.0)]))['inputs']
    assert images.equal(torch.ones(1, 3, 2, 2))
