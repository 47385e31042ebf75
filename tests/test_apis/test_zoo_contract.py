"""Each method of the CLIP family answers in the same way wherever it is asked."""
import pytest
import torch
from mmengine.dataset import default_collate

from mmcluspro import load
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.evaluation import CZSLMetric, Evaluation
from mmcluspro.export import export_model
from mmcluspro.models import Candidates

METHODS = ('caila', 'cds_czsl', 'cpf', 'dfsp', 'gipcol', 'msci', 'pcvl', 'plid', 'tomcat',
           'vp_cmjl')
REFUSED = dict(cds_czsl='CDSHead', cpf='CPFHead', dfsp='DFSPHead', msci='MSCIHead',
               tomcat='TOMCATHead', vp_cmjl='VPCMJLHead')
NONE = {world: dict(bias=0.0, threshold=None, temperature=1.0, seen_bias=0.0)
        for world in ('closed', 'open')}


@pytest.fixture(scope='module')
def dataset():
    return ShapesCZSL(phase='test', indices=12, pipeline=[
        dict(type='mmpretrain.PackInputs',
             algorithm_keys=['attr_label', 'obj_label', 'pair_label'])])


@pytest.fixture(scope='module')
def pictures_of(dataset):
    return [dataset.get_data_info(i)['img'] for i in range(len(dataset))]


@pytest.fixture(scope='module', params=METHODS)
def method(request, write, tmp_path_factory):
    """Name of the method, a checkpoint, its model, and an inferencer."""
    path = tmp_path_factory.mktemp('zoo') / f'{request.param}.pth'
    write(path, f'{request.param}_shapes.py', calibration=NONE)
    return request.param, path, load(path).network, load(path, device='cpu')


def names(space, rows):
    return [(space.attributes[a], space.objects[o]) for a, o in space.pairs[rows].tolist()]


def test_the_inferencer_answers_as_validation(method, dataset, pictures_of):
    _, _, model, inferencer = method
    worlds = dict(closed=model.space, open=model.space.open_world())
    batch = default_collate([dataset[i] for i in range(len(dataset))])
    with torch.no_grad():
        samples = model.test_step(dict(batch, worlds={
            name: Candidates.from_space(space) for name, space in worlds.items()}))

    for world, space in worlds.items():
        scores = torch.stack([sample.get(f'{world}_score') for sample in samples])
        assert scores.shape == (len(dataset), len(space.pairs)) and scores.isfinite().all()
        got = [(answer.best.attribute, answer.best.object)
               for answer in inferencer.predict(pictures_of, world=world)]
        assert got == names(space, scores.argmax(1)), world
    metric = CZSLMetric()
    metric.dataset_meta = dict(space=model.space.to_dict(),
                               evaluation=Evaluation(link=model.head.link))
    metric.process(None, [sample.to_dict() for sample in samples])
    assert 0 <= metric.evaluate(len(samples))['czsl/auc'] <= 100


def test_a_bias_of_calibration_chooses_unseen_pairs(method, pictures_of):
    _, _, model, inferencer = method
    seen = set(names(model.space, model.space.seen.nonzero()[:, 0]))
    got = inferencer.predict(pictures_of, seen_bias=1000.0)
    assert not seen & {(answer.best.attribute, answer.best.object) for answer in got}


def test_new_words_are_answered(method, pictures_of):
    listed = [('red', 'star'), ('blue', 'circle'), ('shiny', 'teapot')]
    with pytest.warns(UserWarning, match='Not in the training data'):
        answer = method[3].predict(pictures_of[0], pairs=listed)[0]
    assert {(pair.attribute, pair.object) for pair in answer.pairs} == set(listed)
    assert sum(pair.probability for pair in answer.pairs) == pytest.approx(1.0, abs=1e-4)
    again = method[3].predict(pictures_of[0])[0]  # new words leave the known ones as they were
    assert again.best.probability > 0


def test_export_agrees_or_is_refused_by_name(method, tmp_path):
    pytest.importorskip('onnxruntime')
    name, path, *_ = method
    if name in REFUSED:
        with pytest.raises(ValueError, match=f'{REFUSED[name]} cannot be exported'):
            export_model(path, tmp_path / 'x.onnx')
        assert not list(tmp_path.iterdir())
    else:  # export itself compares the scores with those of the head
        export_model(path, tmp_path / 'x.onnx')
        assert (tmp_path / 'x.npz').is_file()
