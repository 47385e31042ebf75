"""ClusPro+ from training to a published file, the inferencer, ONNX and a program without torch."""
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.dataset import default_collate

from mmcluspro import load
from mmcluspro.artefact.save import publish
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.engine.launch import build_runner, read_config
from mmcluspro.export import export_model
from mmcluspro.models import Candidates
from mmcluspro.utils.safe_load import load_checkpoint

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
    """One epoch over images of a third of the seen pairs."""
    folder = tmp_path_factory.mktemp('plus')
    cfg = read_config(ROOT / 'configs' / 'cluspro_plus_shapes.py')
    cfg.merge_from_dict({
        'train_cfg.max_epochs': 1, 'train_dataloader.dataset.indices': 280,
        'log_level': 'WARNING', 'work_dir': str(folder), 'launcher': 'none',
        **{f'{phase}_{part}': None for phase in ('val', 'test')
           for part in ('cfg', 'dataloader', 'evaluator')}})
    cfg.train_dataloader.collate_fn = dict(type='default_collate')
    build_runner(cfg).train()
    return folder / 'epoch_1.pth'


@pytest.fixture(scope='module')
def images():
    dataset = ShapesCZSL(phase='test', indices=range(0, 1000, 90), pipeline=[
        dict(type='mmpretrain.PackInputs',
             algorithm_keys=['attr_label', 'obj_label', 'pair_label'])])
    return dataset


def scores_of(path, images, **changes):
    model = load(path).network
    for field, value in changes.items():
        setattr(model.head, field, value)
    batch = default_collate([images[i] for i in range(len(images))])
    worlds = dict(closed=Candidates.from_space(model.space))
    with torch.no_grad():
        samples = model.test_step(dict(batch, worlds=worlds))
    return torch.stack([sample.closed_score for sample in samples]), model


def test_training_fills_the_pairs_that_it_saw_and_publishing_keeps_them(
        checkpoint, images, tmp_path):
    sums = load_checkpoint(checkpoint)['state_dict']['head.pairs.sums']
    filled = sums.any(dim=2).all(dim=1)
    assert sums.isfinite().all() and 20 < filled.sum() < len(sums)
    small = publish(checkpoint, tmp_path / 'small.pth')
    assert torch.equal(load_checkpoint(small)['state_dict']['head.pairs.sums'], sums)
    before, after = (scores_of(path, images)[0] for path in (checkpoint, small))
    assert torch.equal(before, after)
    plain, model = scores_of(checkpoint, images, evidence=0.0)
    known = model.head.pairs.of(model.space.pairs).any(dim=2).any(dim=1)
    assert known.sum() == filled.sum()
    torch.testing.assert_close(before[:, ~known], plain[:, ~known])
    assert (before - plain)[:, known].abs().max() > 1e-4


def test_the_inferencer_answers_as_the_test_does(checkpoint, images):
    scores, model = scores_of(checkpoint, images)
    pictures = [images.get_data_info(i)['img'] for i in range(len(images))]
    got = [(answer.best.attribute, answer.best.object)
           for answer in load(checkpoint, device='cpu').predict(pictures, seen_bias=0.0)]
    assert got == [(model.space.attributes[a], model.space.objects[o])
                   for a, o in model.space.pairs[scores.argmax(dim=1)].tolist()]


def test_onnx_and_the_example_of_the_docs_score_as_torch(checkpoint, images, tmp_path):
    onnxruntime = pytest.importorskip('onnxruntime')
    export_model(checkpoint, tmp_path / 'plus.onnx')  # compares with the head itself
    consumer = runpy.run_path(str(ROOT / 'docs' / 'examples' / 'onnx_predict.py'))
    table = dict(np.load(tmp_path / 'plus.npz'))
    info = consumer['json'].loads(str(table['info']))
    pixels = np.stack([images.get_data_info(i)['img'][..., ::-1] for i in range(len(images))])
    features = onnxruntime.InferenceSession(tmp_path / 'plus.onnx').run(None, {'image': pixels})
    scores, _ = scores_of(checkpoint, images)
    np.testing.assert_allclose(consumer['pair_scores'](features, table, info), scores, atol=1e-4)
    assert info['evidence'] == 1.0
