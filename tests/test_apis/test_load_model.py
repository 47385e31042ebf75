"""A model from its checkpoint alone, without running anything of it."""
import subprocess
import sys
import warnings

import pytest
import torch
from torch.torch_version import TorchVersion

from mmcluspro import load
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.engine.launch import read_config
from mmcluspro.errors import FileError
from mmcluspro.utils.safe_load import safe_load

SPACE = dict(attributes=['wet'], objects=['cat'], pairs=[[0, 0]], seen=[True])


def test_it_predicts_like_the_model_that_was_saved(trained):
    path, original = trained
    loaded = load(path)
    model = loaded.network
    images = torch.randn(3, 3, 48, 48)
    with torch.no_grad():
        expected, got = (m.head.score(m.extract_feat(images), model.head.known_candidates).pair
                         for m in (original, model))
    torch.testing.assert_close(got, expected)
    assert not model.training
    assert loaded.chosen['closed'].temperature == 0.8
    assert loaded.spec['model']['backbone']['arch'] == 'tiny_clip'
    assert loaded.config is None


@pytest.mark.parametrize('version, warned', [('2.9.1', True), ('2.10.0+cu128', False)])
def test_old_torch_is_named_before_a_file_is_read(version, warned, trained, monkeypatch):
    monkeypatch.setattr(torch, '__version__', TorchVersion(version))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        load(trained[0])
    said = [str(warning.message) for warning in caught if 'CVE-2026-24747' in str(warning.message)]
    assert [text.split(' has ')[0] for text in said] == ['torch 2.9.1'] * warned


def test_the_config_of_the_caller_stays_as_it_is(trained):
    path, _ = trained
    config = read_config('baseline_shapes.py')
    before = config.to_dict()
    model = load(path, config=config).network
    assert config.to_dict() == before
    assert model.space.pairs.equal(load(path).network.space.pairs)


def test_its_space_has_the_pairs_of_all_phases(trained):
    assert load(trained[0]).network.space == ShapesCZSL.make_space('all')


def test_a_published_file_without_prototypes_loads(write, tmp_path):
    path, _ = write(tmp_path / 'cluspro.pth', 'cluspro_shapes.py')
    state = safe_load(path)
    assert load(path).network.head.bank('attr').prototypes.shape[1] == 64
    state['state_dict'] = {key: value for key, value in state['state_dict'].items()
                           if 'head.banks.' not in key}
    torch.save(state, path)
    assert not load(path).network.training


def test_a_checkpoint_without_a_description_says_why(write, tmp_path):
    path, _ = write(tmp_path / 'm.pth')
    content = safe_load(path)
    del content['meta']['description']
    content['meta'].update(cfg='model = dict()', no_description='model.neck is a poem')
    torch.save(content, path)
    with pytest.raises(ValueError, match=r'm\.pth, meta: it does not describe its model, because '
                       r'model\.neck is a poem\. Give your config file with --config'):
        load(path)


@pytest.mark.parametrize('content, reason', [
    ({'a': 1}, 'no state_dict and meta'),
    ({'state_dict': {}, 'meta': {}}, "no meta field 'dataset_meta'"),
    ({'state_dict': {}, 'meta': {'dataset_meta': {'space': SPACE}}}, "no meta field 'description'"),
    ({'state_dict': {'a': 3}, 'meta': {}}, "key 'a': a int was found where a tensor is expected"),
    ({'state_dict': {'a': torch.tensor([1, float('nan')])}, 'meta': {}},
     "key 'a': the weights of 1 of 1 tensors are not finite"),
    ({'state_dict': {}, 'meta': {'dataset_meta': {'space': dict(SPACE, pairs=[[0, 7]])}}},
     'label space cannot be read.*outside'),
    ({'state_dict': {}, 'meta': {'dataset_meta': {'space': dict(SPACE, seen='x')}}},
     'label space cannot be read.*space.seen must be a list'),
    ({'state_dict': {}, 'meta': {'calibration': {'closed': {'bias': 'x'}}}},
     r"calibration\['closed'\].bias must be a number from -1000 to 1000, got 'x'"),
    ({'state_dict': {}, 'meta': {'calibration': {'wide': {}}}},
     "meta: calibration must be a dict of 'closed' and 'open'"),
    ({'state_dict': {}, 'meta': {'calibration': [1]}}, "calibration must be a dict of 'closed'"),
    ({'state_dict': {}, 'meta': {'dataset_meta': {'space': dict(SPACE, seen=[False])}}},
     'other.pth, meta.dataset_meta: .* none of its pairs was seen in training'),
])
def test_what_is_no_checkpoint_of_ours_is_said(content, reason, tmp_path):
    torch.save(content, tmp_path / 'other.pth')
    with pytest.raises(ValueError, match=reason):
        load(tmp_path / 'other.pth')


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match='nothing.pth does not exist'):
        load(tmp_path / 'nothing.pth')


@pytest.mark.parametrize('field, value', [
    ('temperature', -1), ('temperature', 0.0), ('temperature', 1e-300), ('temperature', 1e300),
    ('temperature', float('nan')), ('temperature', True), ('seen_bias', 1e308), ('bias', -1001),
    ('prefer_seen', float('inf')), ('prefer_unseen', 1e4), ('threshold', 2), ('threshold', -1.5)])
def test_a_calibration_of_nonsense_is_refused(field, value, trained, tmp_path):
    """A temperature of -1 would answer the least probable pair."""
    content = safe_load(trained[0])
    for good in (dict(temperature=1e-3, seen_bias=-1e3, threshold=-1.0, bias=1e3),
                 dict(temperature=1000, threshold=1)):
        content['meta']['calibration'] = dict(closed=good)
        torch.save(content, tmp_path / 'm.pth')
        load(tmp_path / 'm.pth')
    content['meta']['calibration'] = dict(closed={field: value})
    torch.save(content, tmp_path / 'm.pth')
    with pytest.raises(FileError, match=rf"m.pth, meta: calibration\['closed'\].{field} must be a "
                       'number from .* Give a file that training wrote'):
        load(tmp_path / 'm.pth')


@pytest.mark.slow
def test_importing_the_package_stays_light():
    code = ('import sys, mmcluspro; heavy = {"open_clip", "mmpretrain.models"} & set(sys.modules);'
            'assert not heavy, heavy; assert "TrainedModel" in mmcluspro.__all__')
    subprocess.run([sys.executable, '-W', 'ignore', '-c', code], check=True)


def test_both_towers_are_halves_of_one_clip_that_is_built_once(trained, monkeypatch):
    from mmcluspro.models import clip
    built, build = [], clip._build
    monkeypatch.setattr(clip, '_build', lambda *args, **kwargs: built.append(args[0])
                        or build(*args, **kwargs))
    network = load(trained[0], 'cpu').network
    assert built.count('tiny_clip') == 1
    own = trained[1].state_dict()
    assert all(torch.equal(value, own[key]) for key, value in network.state_dict().items())
