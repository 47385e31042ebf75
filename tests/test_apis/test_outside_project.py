"""A project outside this repository, with registries, a head, a bank and data of its own."""
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS as ROOT_DATASETS
from mmengine.registry import MODELS as ROOT_MODELS
from mmengine.runner import Runner
from mmpretrain import ImageClassificationInferencer, get_model
from PIL import Image

import mmcluspro
from mmcluspro.artefact.load import read_checkpoint
from mmcluspro.cli import main
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.demo.demo_command import parse_args, prepare
from mmcluspro.demo.server import serve
from mmcluspro.engine.hooks import EvaluationHook
from mmcluspro.engine.launch import read_config
from mmcluspro.evaluation import calculate

DOCS = Path(__file__).resolve().parents[2] / 'docs'
OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({}))
IMPORT = ['--import', 'tagger.czsl_head']
PICTURES = """
from mmengine.registry import DATASETS as ROOT
from mmengine.registry import Registry
from mmcluspro.datasets import ShapesCZSL

DATASETS = Registry('dataset', parent=ROOT, scope='tagger', locations=['tagger.pictures'])

@DATASETS.register_module()
class EveryFourth(ShapesCZSL):
    def load_data_list(self):
        return super().load_data_list()[::4]
"""
CONFIG = """
_base_ = 'tagger_shapes.py'
custom_imports = dict(imports=['tagger.czsl_head', 'tagger.pictures'])
data = dict(type='tagger.EveryFourth')
train_cfg = dict(max_epochs=1)
"""


@pytest.fixture(scope='module')
def project(tmp_path_factory):
    """The example of the docs in a folder of its own, with the page's bank, and data."""
    folder, before = tmp_path_factory.mktemp('outside'), os.getcwd()
    for part in ('tagger', 'configs'):
        shutil.copytree(DOCS / 'examples' / 'tagger' / part, folder / part)
    page = (DOCS / 'other_projects.md').read_text(encoding='utf-8')
    bank = re.search(r'```python\n(from torch import nn\n.*?class ClusteredHead.*?)```', page,
                     re.DOTALL)[1]
    (folder / 'tagger' / 'bank.py').write_text(
        bank.replace('from mmengine.registry import', 'from .czsl_head import'))
    (folder / 'tagger' / 'pictures.py').write_text(PICTURES)
    (folder / 'configs' / 'own.py').write_text(CONFIG)
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    yield folder
    os.chdir(before)
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.split('.')[0] == 'tagger']:
        del sys.modules[name]
    for registry in (ROOT_MODELS, ROOT_DATASETS):
        registry.children.pop('tagger', None)


@pytest.fixture(scope='module')
def checkpoint(project):
    """What ``mmcluspro train`` on two ranks wrote, after a validation."""
    done = subprocess.run(
        [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=2',
         '-m', 'mmcluspro', 'train', 'configs/own.py', '--launcher', 'pytorch', '--no-test',
         '--work-dir', 'run'],
        env={**os.environ, 'PYTHONPATH': os.pathsep.join([str(project), *sys.path])},
        capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert "type='tagger.EveryFourth'" in (project / 'run' / 'own.py').read_text()
    return project / 'run' / 'best_czsl_auc_epoch_1.pth'


@pytest.fixture(scope='module')
def pictures(project):
    """Three files."""
    data = ShapesCZSL(phase='test', indices=[0, 200, 400])
    paths = [str(project / f'{place}.png') for place in range(3)]
    for place, path in enumerate(paths):
        Image.fromarray(data.get_data_info(place)['img'][..., ::-1].copy()).save(path)
    return paths


def answers(checkpoint, pictures, *words):
    out = Path('answers.json')
    out.unlink(missing_ok=True)  # or predict would continue it
    assert main(['predict', str(checkpoint), *pictures, '--out', str(out), '--device', 'cpu',
                 *words]) == 0
    return [row['pairs'][0] for row in json.loads(out.read_text())]


def names(rows):
    return [(row['attribute'], row['object']) for row in rows]


@pytest.mark.slow
def test_a_checkpoint_names_the_head_by_its_scope_and_only_the_user_opens_it(
        checkpoint, pictures, capsys):
    with pytest.raises(SystemExit):
        answers(checkpoint, pictures)
    said = capsys.readouterr().err
    assert "head.type is 'tagger.ScaledHead'" in said and '--import MODULE' in said
    meta = read_checkpoint(checkpoint).meta
    head = meta['description']['model']['head']
    assert head['factor'] == 2.0 and 'noise' not in head
    assert meta['calibration']['open']['threshold'] is not None


@pytest.mark.slow
def test_it_predicts_and_is_published_exported_and_served(project, checkpoint, pictures):
    found = answers(checkpoint, pictures, *IMPORT)
    assert found == answers(checkpoint, pictures, '--config', 'configs/own.py', *IMPORT)
    assert main(['publish', str(checkpoint), 'published.pth']) == 0
    published, = project.glob('published-*.safetensors')
    assert found == answers(published, pictures, *IMPORT)
    model = mmcluspro.load(checkpoint, device='cpu', imports=['tagger.czsl_head'])
    assert names(found) == [(one.best.attribute, one.best.object)
                            for one in model.predict(pictures)]

    pytest.importorskip('onnx')
    assert main(['export', str(checkpoint), '--out', 'tagger.onnx', *IMPORT]) == 0
    assert Path('tagger.onnx').exists()  # export compares the files with the head before

    pytest.importorskip('gradio')
    page = project / 'page'
    page.mkdir()
    app, endpoint = prepare(parse_args([str(checkpoint), '--device', 'cpu', *IMPORT]), str(page))
    try:
        address = serve(app, endpoint, str(page), '127.0.0.1', None).rstrip('/')
        sent = urllib.request.Request(f'{address}/predict', Path(pictures[1]).read_bytes(),
                                      {'Content-Type': 'application/octet-stream'})
        with OPEN.open(sent, timeout=60) as answer:
            best = json.loads(answer.read())['pairs'][0]
    finally:
        app.close(verbose=False)
    assert names([best]) == names(found[1:2])
    assert best['probability'] == pytest.approx(found[1]['probability'], abs=1e-4)


@pytest.mark.slow
def test_get_model_and_the_inferencer_answer_as_ours_without_a_bias(checkpoint, pictures):
    with mmcluspro.safe_loading():
        model = get_model(read_config('configs/own.py'), pretrained=str(checkpoint))
    theirs = ImageClassificationInferencer(model, device='cpu')(pictures)
    ours = mmcluspro.load(checkpoint, device='cpu', imports=['tagger.czsl_head']).predict(
        pictures, seen_bias=0.0)
    assert [answer['pred_class'] for answer in theirs] == [
        f'{answer.best.attribute} {answer.best.object}' for answer in ours]


def classifier(work_dir, num_classes=144, **hook):
    """mmpretrain's classifier with a bank, on our pictures, measured by our metric."""
    for module in ('tagger.bank', 'tagger.pictures'):
        import_module(module)

    def loader(phase, shuffle):
        return dict(
            batch_size=64, num_workers=0, collate_fn=dict(type='default_collate'),
            sampler=dict(type='DefaultSampler', shuffle=shuffle),
            dataset=dict(type='tagger.EveryFourth', phase=phase, indices=215, pipeline=[
                dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label'])]))

    return Config(dict(
        default_scope='mmpretrain', work_dir=str(work_dir), log_level='WARNING',
        model=dict(
            type='ImageClassifier', data_preprocessor=dict(mean=[127.5] * 3, std=[127.5] * 3),
            backbone=dict(type='mmcluspro.CLIPVision', arch='tiny_clip', pretrained='tiny_clip'),
            head=dict(type='tagger.ClusteredHead', num_classes=num_classes, in_channels=64,
                      bank=dict(num_prototypes=2))),
        train_dataloader=loader('train', True), val_dataloader=loader('val', False),
        train_cfg=dict(by_epoch=True, max_epochs=4), val_cfg=dict(),
        optim_wrapper=dict(optimizer=dict(type='Adam', lr=0.05)),
        val_evaluator=[dict(type='mmcluspro.CZSLMetric'), dict(type='Accuracy')],
        custom_hooks=[dict(type='mmcluspro.PrototypeHook', interval=1, **hook)],
        randomness=dict(seed=0)))


def test_one_numbering_in_all_phases():
    phases = {phase: ShapesCZSL(phase=phase) for phase in ('train', 'val', 'test')}
    classes, = {data.metainfo['classes'] for data in phases.values()}
    assert len(classes) == len(set(classes)) == 144
    for data in phases.values():
        for i in range(0, len(data), 50):
            info = data.get_data_info(i)
            assert classes[info['gt_label']] == (
                f'{data.space.attributes[info["attr_label"]]} '
                f'{data.space.objects[info["obj_label"]]}')


def test_a_classifier_with_a_bank_trains_and_gets_the_numbers_of_its_scores(project, tmp_path):
    runner = Runner.from_cfg(classifier(tmp_path))
    head = runner.model.head
    bank, starts, step = head.bank('class'), [], head.update_prototypes
    assert not bool(bank.initialised)

    def update():
        starts.append(bank.prototypes.clone())
        step()

    head.update_prototypes = update
    runner.train()

    assert len(starts) == 16 and bool(bank.initialised)
    assert all((one != other).any() for one, other in zip(starts, starts[1:]))
    assert 0 < runner.message_hub.get_scalar('train/class_used').current() <= 1
    assert runner.message_hub.get_scalar('train/pcl_loss').current() > 0
    scores, labels = [], []
    with torch.no_grad():
        for batch in runner.val_dataloader:
            samples = runner.model.val_step(batch)
            scores += [sample.pred_score.numpy() for sample in samples]
            labels += [int(sample.gt_label) for sample in samples]
        # Features are nearest to prototypes of their own class.
        data = runner.model.data_preprocessor(next(iter(runner.train_dataloader)), True)
        clusters = head.clusters(runner.model.extract_feat(data['inputs']), data['data_samples'])
        rows = head.observe(clusters)['class']
    assert (rows // 2 == clusters['class'][1])[rows >= 0].all() and (rows >= 0).any()
    data = runner.val_dataloader.dataset
    known = data.known.lookup(*data.space.pairs.T).numpy()
    want = calculate(np.stack(scores)[:, known],
                     [known.tolist().index(label) for label in labels],
                     data.space.seen, data.space.pairs, bias_on='log')
    assert {name: runner.message_hub.get_scalar(f'val/czsl/{name}').current()
            for name in want} == want
    # Seen pairs are learnt, and no unseen one was ever a target.
    assert want['seen'] > 10 > want['unseen']
    assert runner.message_hub.get_scalar('val/accuracy/top1').current() > 5
    runner.register_hook(EvaluationHook())
    again = runner.val()
    assert {name: again[f'czsl/{name}'] for name in want} == want


def test_fewer_images_are_spread_evenly_over_labels_of_others(project, tmp_path, monkeypatch):
    taken = []
    runner = Runner.from_cfg(classifier(tmp_path, init_samples=4))
    monkeypatch.setattr(type(runner.model.head.bank('class')), 'initialise',
                        lambda bank, features, labels, counts: taken.append(len(features)))
    next(hook for hook in runner.hooks
         if type(hook).__name__ == 'PrototypeHook').before_train(runner)
    assert taken == [4]


def test_another_number_of_classes_is_refused(project, tmp_path):
    runner = Runner.from_cfg(classifier(tmp_path, 115))
    with pytest.raises(ValueError, match='pred_score has 115 numbers, but there are 144 pairs in '
                       'all phases: set head.num_classes'):
        runner.val()
