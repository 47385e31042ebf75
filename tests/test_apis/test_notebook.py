"""The ten lines of a notebook, on drawn shapes and on a folder of photographs."""
import doctest
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

import mmcluspro as cz
from mmcluspro import api
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.engine.launch import build_runner, fill_loaders, read_config

FEW = {'train_dataloader.dataset.indices': 256, 'val_dataloader.dataset.indices': 100,
       'default_hooks.prototypes.init_samples': 128}
ALL_PHASES = ('train', 'val', 'test')


@pytest.fixture(scope='module')
def data():
    return cz.load_dataset('shapes')


@pytest.fixture(scope='module')
def trained(data, tmp_path_factory):
    """A model of a moment's training, and its work folder."""
    folder = tmp_path_factory.mktemp('run')
    model = cz.create_model('cluspro', data)
    assert cz.train(model, data, epochs=1, work_dir=folder, **FEW) is model
    return model, folder


def test_a_model_is_trained_as_by_the_command(trained, tmp_path):
    cfg = read_config('cluspro_shapes.py')
    cfg.merge_from_dict({'train_cfg.max_epochs': 1, 'work_dir': str(tmp_path),
                         'launcher': 'none', **FEW})
    fill_loaders(cfg, ALL_PHASES)
    runner = build_runner(cfg)
    runner.train()
    ours = torch.load(trained[1] / 'epoch_1.pth', weights_only=False)
    theirs = torch.load(tmp_path / 'epoch_1.pth', weights_only=False)
    assert ours['state_dict'].keys() == theirs['state_dict'].keys()
    for name, weight in theirs['state_dict'].items():
        assert weight.equal(ours['state_dict'][name]), name
    assert ours['meta']['calibration'] == theirs['meta']['calibration']


def test_the_test_has_the_numbers_of_the_command(trained, data, tmp_path):
    model, folder = trained
    cfg = read_config('cluspro_shapes.py')
    cfg.merge_from_dict({'work_dir': str(tmp_path), 'launcher': 'none',
                         'load_from': str(folder / 'epoch_1.pth')})
    fill_loaders(cfg, ALL_PHASES)
    numbers = build_runner(cfg).test()
    for world, prefix in (('closed', 'czsl'), ('open', 'czsl_open')):
        got = cz.test(model, data, world)
        assert list(got) == ['seen', 'unseen', 'hm', 'auc']
        assert got == {name: numbers[f'{prefix}/{name}'] for name in got}


def test_a_file_answers_as_the_model(trained, data):
    model, folder = trained
    loaded = cz.load(folder / 'epoch_1.pth', device='cpu')
    saved = cz.load(model.save(folder / 'small.safetensors'), device='cpu')
    assert cz.test(saved, data) == cz.test(loaded, data) == cz.test(model, data)
    pictures = [ShapesCZSL(phase='test').get_data_info(i)['img'] for i in (0, 300)]
    scores = loaded.scores(pictures, pairs=[('red', 'star'), ('shiny', 'circle')])
    assert scores.shape == (2, 2) and (scores >= 0).all() and (scores.sum(1) <= 1).all()
    for answer in loaded.predict(pictures):
        assert answer.best == answer.pairs[0]
    with pytest.raises(ValueError, match='has no config to train with'):
        cz.train(loaded, data)


def test_a_model_that_has_predicted_is_not_trained_on(data):
    model = cz.create_model('baseline', data)
    with pytest.warns(UserWarning, match='holds no calibration'):
        model.predict(ShapesCZSL(phase='test').get_data_info(0)['img'])
    with pytest.raises(ValueError, match='has predicted, for which its weights were merged'):
        cz.train(model, data)


def test_photographs_are_split_trained_and_tested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn = ShapesCZSL(phase='train')
    for i in range(0, len(drawn), 4):
        info = drawn.get_data_info(i)
        folder = Path('photos', f'{drawn.space.attributes[info["attr_label"]]}_'
                      f'{drawn.space.objects[info["obj_label"]]}')
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(info['img'][..., ::-1]).save(folder / f'{i}.png')
    (Path('photos') / 'red_circle').mkdir(exist_ok=True)
    Path('photos/red_circle/broken.png').write_text('no image')
    with pytest.warns(UserWarning, match='1 of .* images are left out, such as .*broken.png'):
        data = cz.load_dataset('photos')
    assert data.name == 'own_data' and Path('work_dirs/photos/table.csv').is_file()
    assert not data.space.seen.all()
    model = cz.create_model('cluspro', data, clip='tiny_clip')
    cz.train(model, data, epochs=1)
    numbers = cz.test(model, data)
    assert 0 < numbers['seen'] <= 100
    again = cz.load(next(Path('work_dirs').rglob('best_*.pth')), device='cpu')
    assert cz.test(again, data) == numbers


@pytest.mark.parametrize('call, words', [
    (lambda: cz.load_dataset('phots'), 'phots does not exist, and is none of the datasets .*cgqa'),
    (lambda: cz.create_model('clspro', cz.load_dataset('shapes')), 'Did you mean cluspro_shapes'),
    (lambda: cz.create_model('cluspro', cz.load_dataset('shapes'), clip='ViT-B-33'),
     "arch='ViT-B-33' is not an architecture of open_clip. Did you mean ViT-B-32"),
])
def test_what_is_not_there_is_named(call, words):
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        call()


def test_a_published_dataset_is_found_by_its_name_and_folder():
    data = cz.load_dataset('utzappos', root='/data/ut-zap50k')
    assert dict(data.fields) == dict(type='mmcluspro.UTZappos', data_root='/data/ut-zap50k')


def test_the_examples_run():
    failed, tried = doctest.testmod(api)
    assert failed == 0 and tried >= 4


def test_importing_the_package_imports_nothing_heavy():
    code = ('import sys, mmcluspro; assert "load" in dir(mmcluspro); '
            'print([name for name in ("torch", "mmengine", "numpy") if name in sys.modules])')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == '[]'
