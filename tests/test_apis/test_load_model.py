"""A model from its checkpoint alone, without running anything of it."""
import subprocess
import sys

import pytest
import torch

from mmcluspro.apis import load_model
from mmcluspro.apis.config_text import parse_config
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.engine.launch import read_config
from mmcluspro.utils.safe_load import safe_load

SPACE = dict(attributes=['wet'], objects=['cat'], pairs=[[0, 0]], seen=[True])


def test_it_predicts_like_the_model_that_was_saved(trained):
    path, original = trained
    model = load_model(path)
    images = torch.randn(3, 3, 48, 48)
    with torch.no_grad():
        expected, got = (m.head.score(m.extract_feat(images), model.head.known_candidates).pair
                         for m in (original, model))
    torch.testing.assert_close(got, expected)
    assert not model.training
    assert model.meta['calibration']['closed']['temperature'] == 0.8
    assert model.description['model']['backbone']['arch'] == 'tiny_clip'
    assert model.cfg is None


def test_the_config_of_the_caller_stays_as_it_is(trained):
    path, _ = trained
    config = read_config('baseline_shapes.py')
    before = config.to_dict()
    model = load_model(path, config=config)
    assert config.to_dict() == before
    assert model.space.pairs.equal(load_model(path).space.pairs)


def test_its_space_has_the_pairs_of_all_phases(trained):
    assert load_model(trained[0]).space == ShapesCZSL.make_space('all')


def test_a_published_file_without_prototypes_loads(write, tmp_path):
    path, _ = write(tmp_path / 'cluspro.pth', 'cluspro_shapes.py')
    state = safe_load(path)
    assert load_model(path).head.bank('attr').prototypes.shape[1] == 64
    state['state_dict'] = {key: value for key, value in state['state_dict'].items()
                           if 'head.banks.' not in key}
    torch.save(state, path)
    assert not load_model(path).training


@pytest.mark.parametrize('line', [
    '__import__("os").mkdir("owned")', 'import os', 'a = open("owned", "w")',
    'a = [x for x in (1, 2)]', 'a = dict(**{"b": 1})', 'a = {**{"b": 1}}', 'a = "x".join(["b"])'])
def test_a_config_text_is_read_and_never_run(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r'evil\.pth, meta\.cfg: the config inside cannot be read'):
        parse_config(f'model = dict(type="A")\n{line}\n', 'evil.pth')
    assert not list(tmp_path.iterdir())


def test_literals_of_every_kind_are_read():
    text = "a = dict(b=[1, -2.5, None], c=(True, 'x'), d={'e': {1}}, f=float('inf'))\ng = inf\n"
    cfg = parse_config(text, 'x')
    assert cfg['a'] == dict(b=[1, -2.5, None], c=(True, 'x'), d={'e': {1}}, f=float('inf'))
    assert cfg['g'] == float('inf')


def test_a_checkpoint_whose_config_would_run_code_is_refused(write, tmp_path):
    _, model = write(tmp_path / 'good.pth')
    text = ('model = dict(type="mmcluspro.CompositionalClassifier", '
            'backbone=dict(type="os.system", command="true"), head=dict(type="x"))')
    path, _ = write(tmp_path / 'evil.pth', text=text)
    with pytest.raises(ValueError, match=r"evil\.pth.* refused.*type is 'os\.system'"):
        load_model(path)


@pytest.mark.parametrize('content, reason', [
    ({'a': 1}, 'no state_dict and meta'),
    ({'state_dict': {}, 'meta': {}}, "no meta field 'dataset_meta'"),
    ({'state_dict': {}, 'meta': {'dataset_meta': {'space': SPACE}}}, "no meta field 'cfg'"),
    ({'state_dict': {'a': 3}, 'meta': {}}, "key 'a': a int was found where a tensor is expected"),
    ({'state_dict': {'a': torch.tensor([1, float('nan')])}, 'meta': {}},
     "key 'a': the weights of 1 of 1 tensors are not finite"),
    ({'state_dict': {}, 'meta': {'dataset_meta': {'space': dict(SPACE, pairs=[[0, 7]])}}},
     'label space cannot be read.*outside'),
    ({'state_dict': {}, 'meta': {'dataset_meta': {'space': dict(SPACE, seen='x')}}},
     'label space cannot be read.*space.seen must be a list'),
    ({'state_dict': {}, 'meta': {'calibration': {'closed': {'bias': 'x'}}}},
     'must be a finite number, got'),
])
def test_what_is_no_checkpoint_of_ours_is_said(content, reason, tmp_path):
    torch.save(content, tmp_path / 'other.pth')
    with pytest.raises(ValueError, match=reason):
        load_model(tmp_path / 'other.pth')


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match='nothing.pth does not exist'):
        load_model(tmp_path / 'nothing.pth')


@pytest.mark.slow
def test_importing_the_package_stays_light():
    code = ('import sys, mmcluspro; heavy = {"open_clip", "mmpretrain.models"} & set(sys.modules);'
            'assert not heavy, heavy; assert "CZSLInferencer" in mmcluspro.__all__')
    subprocess.run([sys.executable, '-W', 'ignore', '-c', code], check=True)
