"""Training from stored features equals training from images with the frozen backbone."""
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.registry import MODELS, init_default_scope

sys.path.insert(0, str(Path(__file__).parent))
from cached_worker import IMAGES, INDICES, ROOT, cached_config, train

from mmcluspro.utils.plain_files import CHECKSUM, with_checksum

CONFIG = str(ROOT / 'configs' / 'frozen_baseline_shapes.py')


@pytest.fixture(scope='module')
def extract():
    """Runs tools/extract_features.py in this process."""
    path = ROOT / 'tools' / 'extract_features.py'
    spec = importlib.util.spec_from_file_location('extract_features', path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)

    def run(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, 'argv', ['extract_features.py', *map(str, arguments)])
            tool.main()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield run
    torch.set_num_threads(threads)


@pytest.fixture(scope='module')
def features(extract, tmp_path_factory):
    """Features of some images of each phase, in several shards."""
    root = tmp_path_factory.mktemp('features')
    indices = [f'train_dataloader.dataset.indices={INDICES}',
               *(f'{phase}_dataloader.dataset.indices=1000' for phase in ('val', 'test'))]
    extract(CONFIG, '--out', root, '--workers', 0, '--shard-size', 200, '--cfg-options', *indices)
    return root


@pytest.fixture(scope='module')
def start(tmp_path_factory):
    """A file for the weights that all runs of a method begin with."""
    folder = tmp_path_factory.mktemp('start')
    return lambda method: folder / f'{method}.pt'


@pytest.fixture(scope='module')
def trained(features, start, tmp_path_factory):
    """Both ways of training, once a method."""
    made = {}

    def get(method):
        if method not in made:
            made[method] = [
                train(cached_config(f'frozen_{method}_shapes.py', features,
                                    tmp_path_factory.mktemp('run'), from_images), start(method))
                for from_images in (True, False)]
        return made[method]

    return get


@pytest.mark.parametrize('method', ['baseline', 'cluspro'])
def test_features_train_as_images_do(trained, method):
    (_, images), (_, cached) = trained(method)

    assert len(cached['loss']) == INDICES // 32
    assert cached['loss'] == pytest.approx(images['loss'], abs=1e-5)
    assert set(cached['state']) == set(images['state'])
    for key, value in images['state'].items():
        torch.testing.assert_close(cached['state'][key], value, atol=1e-5, rtol=0,
                                   msg=lambda text, key=key: f'{key}: {text}')
    assert cached['val'] == pytest.approx(images['val'], abs=1e-3) and cached['val']


def test_it_trains_without_images_and_backbone(trained):
    _, (runner, _) = trained('baseline')
    assert not runner.model.backbone.built
    sample = runner.train_dataloader.dataset[0]
    assert sample['inputs'].shape == (64, )


def test_a_model_of_features_predicts_from_images(trained):
    (images, _), (cached, state) = trained('baseline')
    inputs = torch.randint(256, (3, 3, 48, 48), generator=torch.Generator().manual_seed(0))
    scores = lambda model: model.eval().head(
        model.extract_feat(model.data_preprocessor(dict(inputs=inputs))['inputs']))
    with torch.no_grad():
        got = scores(cached.model)
        images.model.load_state_dict(state['state'])  # the keys are those of the other config
        torch.testing.assert_close(got, scores(images.model))
    assert cached.model.backbone.built
    assert set(cached.model.state_dict()) == set(state['state'])


def build(features, **changes):
    init_default_scope('mmpretrain')
    return MODELS.build(dict(type='mmcluspro.CachedFeatures', features=str(features),
                             backbone={**IMAGES, **changes}))


def test_other_sources_are_refused(features, tmp_path):
    backbone = build(features)
    backbone.init_weights()
    assert backbone(torch.ones(2, 64))[0].equal(torch.ones(2, 64))
    other = build(features, img_size=32)
    for check in (other.init_weights, lambda: other(torch.ones(2, 64))):
        with pytest.raises(ValueError, match=r'backbone\.img_size was None and is 32'):
            check()
    build(features, frozen=True, with_cp=False, peft=None).init_weights()  # the same features

    copy = shutil.copytree(features, tmp_path / 'copy')
    facts = json.loads((copy / 'features.json').read_text())
    del facts[CHECKSUM]
    facts['weights']['tiny_clip'] = '00'
    (copy / 'features.json').write_text(json.dumps(with_checksum(facts)))
    with pytest.raises(ValueError, match="the file 'tiny_clip' holds other weights"):
        build(copy).init_weights()


def with_facts(features, folder, **changes):
    """A copy of the features whose facts are changed."""
    copy = shutil.copytree(features, folder)
    facts = json.loads((copy / 'features.json').read_text())
    del facts[CHECKSUM]
    (copy / 'features.json').write_text(json.dumps(with_checksum({**facts, **changes})))
    return copy


@pytest.mark.parametrize('stored, asked', [('avg', 'cls'), (None, 'avg'), ('cls', None)])
def test_another_pooling_is_refused(features, tmp_path, stored, asked):
    folder = with_facts(features, tmp_path / 'copy', pool=stored)
    projected = lambda pool: MODELS.build(dict(
        type='mmcluspro.ProjectedBackbone', in_channels=64, out_dim=8, pool=pool,
        backbone=dict(type='mmcluspro.CachedFeatures', features=str(folder), backbone=IMAGES)))
    message = rf'features in {folder} .*: backbone\.pool was {stored!r} and is {asked!r}'
    for check in (lambda model: model.init_weights(), lambda model: model(torch.ones(2, 64))):
        with pytest.raises(ValueError, match=message):
            check(projected(asked))
        check(projected(stored))


@pytest.mark.parametrize('stored, out_tokens', [('cls', True), ('tokens', False)])
def test_a_feature_instead_of_tokens_is_refused(features, tmp_path, stored, out_tokens):
    folder = with_facts(features, tmp_path / 'copy', pool=stored)
    model = MODELS.build(dict(
        type='mmcluspro.ProjectedBackbone', in_channels=16, out_dim=8, pool='cls',
        out_tokens=out_tokens,
        backbone=dict(type='mmcluspro.CachedFeatures', features=str(folder), backbone=IMAGES)))
    message = rf'backbone\.out_tokens was {not out_tokens} and is {out_tokens}'
    for check in (model.init_weights, lambda: model(torch.ones(2, 64))):
        with pytest.raises(ValueError, match=message):
            check()


def test_features_pooled_outside_are_refused_without_pooling(features, tmp_path):
    folder = with_facts(features, tmp_path / 'copy', pool='avg')
    with pytest.raises(ValueError, match=r"backbone\.pool was 'avg' and is None"):
        build(folder).init_weights()


def classifier(features, tmp_path, **preprocessor):
    cfg = cached_config('frozen_baseline_shapes.py', features, tmp_path)
    cfg.model.data_preprocessor.update(preprocessor)
    init_default_scope('mmpretrain')
    return MODELS.build(cfg.model)


@pytest.mark.parametrize('field, value', [
    ('mean', [1, 2, 3]), ('to_rgb', False), ('pad_size_divisor', 32)])
def test_another_normalisation_is_refused(features, tmp_path, field, value):
    model = classifier(features, tmp_path, **{field: value})
    message = rf'features in {features} .*: data_preprocessor\.{field} was .* and is '
    for check in (model.init_weights, lambda: model.extract_feat(torch.ones(2, 64))):
        with pytest.raises(ValueError, match=message + re.escape(str(value))):
            check()


def test_the_same_normalisation_may_be_written_otherwise(features, tmp_path):
    facts = json.loads((features / 'features.json').read_text())['preprocessor']
    model = classifier(features, tmp_path, mean=tuple(facts['mean']), pad_value=0, to_onehot=True,
                       num_classes=4, type='mmpretrain.ClsDataPreprocessor')
    model.init_weights()


def test_checkpoints_of_other_weights_are_refused(features, tmp_path):
    backbone = build(features)
    backbone.init_weights()
    state = backbone.state_dict()
    backbone.load_state_dict(state)
    state['restorable_fingerprint'] = state['restorable_fingerprint'] + 1
    with pytest.raises(ValueError, match='checkpoint was trained on features of other weights'):
        backbone.load_state_dict(state)
    fresh = build(features)
    fresh.load_state_dict(state)
    with pytest.raises(ValueError, match='the model was trained on those of other weights'):
        fresh(torch.ones(2, 64))
    with pytest.raises(ValueError, match='trained on features of other weights'):
        fresh(torch.ones(2, 3, 48, 48))
    # Without the folder there are no features to compare with, and images still work.
    assert build(tmp_path / 'gone')(torch.ones(2, 3, 48, 48))[-1].shape == (2, 64)


def test_a_backbone_that_trains_is_refused(extract, features, tmp_path):
    lora = str(ROOT / 'configs' / 'baseline_shapes.py')
    with pytest.raises(ValueError, match='model.backbone has peft: it trains'):
        extract(lora, '--out', tmp_path)
    with pytest.raises(ValueError, match=r'\d+ trainable parameters, first visual'):
        extract(lora, '--out', tmp_path, '--cfg-options', 'model.backbone.peft=None',
                'model.backbone.frozen=False')
    with pytest.raises(ValueError, match='give --out FOLDER'):
        extract(lora)
    with pytest.raises(ValueError, match='peft trains inside the backbone'):
        build(features, peft=dict(type='mmcluspro.LoRA'))


def test_the_same_command_goes_on_and_other_settings_do_not(extract, features, capsys):
    capsys.readouterr()
    extract(CONFIG, '--out', features, '--workers', 0, '--shard-size', 200, '--phases', 'val',
            '--cfg-options', 'val_dataloader.dataset.indices=1000')
    out = capsys.readouterr().out
    assert 'of 1000 images in' in out and ', 0 of them new' in out
    with pytest.raises(ValueError, match=r'something else: backbone\.img_size was None and is 32'):
        extract(CONFIG, '--out', features, '--shard-size', 200, '--cfg-options',
                'model.backbone.backbone.img_size=32')


@pytest.mark.slow
def test_two_processes_train_as_one(trained, features, start, tmp_path):
    _, (_, one) = trained('cluspro')
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    worker = Path(__file__).with_name('cached_worker.py')
    done = subprocess.run(
        [sys.executable, '-m', 'torch.distributed.run', '--master_addr=127.0.0.1',
         f'--master_port={port}', '--nproc_per_node=2', str(worker), 'frozen_cluspro_shapes.py',
         str(features), str(start('cluspro')), str(tmp_path)],
        capture_output=True, text=True, check=False, env={**os.environ, 'OMP_NUM_THREADS': '1'})
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (torch.load(tmp_path / f'rank{rank}.pt') for rank in (0, 1))
    for key, value in one['state'].items():
        assert first['state'][key].equal(second['state'][key]), f'{key} differs between ranks'
        # Rounding may decide a near tie between two prototypes, which these follow.
        if not key.endswith(('.hits', '.usage', '.potentials', '.features')):
            torch.testing.assert_close(first['state'][key], value, atol=1e-2, rtol=0)
    assert first['val']['val/czsl/auc'] == pytest.approx(one['val']['val/czsl/auc'], abs=0.5)


@pytest.mark.slow
def test_features_train_and_predict_on_a_pretended_gpu(cuda, features, tmp_path):
    cfg = cached_config('frozen_cluspro_shapes.py', features, tmp_path / 'run')
    runner, _ = train(cfg, tmp_path / 'start.pt')
    assert runner.model.head.device.type == 'cuda' and runner.test()['czsl/auc'] >= 0
    with torch.inference_mode():  # images, which the backbone behind the features takes
        scores = runner.model.eval()(torch.rand(2, 3, 48, 48, device='cuda'))
    assert scores.device.type == 'cuda' and runner.model.backbone.built
    assert not cuda.faults


def test_extraction_on_a_pretended_gpu(cuda, extract, features, tmp_path):
    extract(CONFIG, '--out', tmp_path, '--workers', 0, '--device', 'cuda', '--phases', 'val',
            '--cfg-options', 'val_dataloader.dataset.indices=32')
    (made, ), stored = tmp_path.glob('val/*.npy'), sorted(features.glob('val/*.npy'))[0]
    np.testing.assert_allclose(np.load(made), np.load(stored)[:32], atol=1e-5)
    assert not cuda.faults
