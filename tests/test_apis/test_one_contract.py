"""A head with scores of its own gives the same answers wherever it is asked."""
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import default_collate
from PIL import Image
from torch.nn import functional as F

from mmcluspro import load
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.demo.logic import Classifier
from mmcluspro.engine.launch import read_config
from mmcluspro.evaluation import CZSLMetric, Evaluation
from mmcluspro.export import export_model
from mmcluspro.models import Candidates
from mmcluspro.models.heads import Portable, ThreePathHead
from mmcluspro.models.structures import Scores, as_features
from mmcluspro.registry import MODELS
from mmcluspro.visualization.phase import answer_phase, run_phase

NONE = {world: dict(bias=0.0, threshold=None, temperature=1.0, seen_bias=0.0)
        for world in ('closed', 'open')}


@MODELS.register_module(force=True)
class InvertedHead(ThreePathHead):
    """The worst pair of Eq. 13 is the best one."""

    def score(self, feats, candidates):
        return Scores(2 - super().score(feats, candidates).pair)


@MODELS.register_module(force=True)
class PortableInvertedHead(InvertedHead):
    """Also says how to score outside torch."""

    def portable(self):
        paths, info, score, _ = super().portable()
        return Portable(paths, dict(info, fusion='inverted'),
                        lambda features, table: 2 - score(features, table))


@MODELS.register_module(force=True)
class NudgedHead(ThreePathHead):
    """One pair is half a percent of the spread better than Eq. 13 has it."""

    def score(self, feats, candidates):
        scores = super().score(feats, candidates)
        pair = scores.pair.clone()
        pair[:, 0] += 0.005 * (pair.max() - pair.min())
        return scores._replace(pair=pair)


@MODELS.register_module(force=True)
class MovingHead(ThreePathHead):
    """Prefers the pairs that look like the images it was asked about so far."""

    moved = None

    def forget_adaptation(self):
        self.moved = None

    def adapt(self, feats):
        mean = as_features(feats).composition.mean(dim=0)
        self.moved = mean if self.moved is None else 0.5 * self.moved + mean

    def score(self, feats, candidates):
        scores = super().score(feats, candidates)
        if self.moved is None:
            return scores
        texts = self.texts(candidates.to(self.device)).composition
        return scores._replace(pair=scores.pair + texts @ F.normalize(self.moved, dim=0) + 1)


@pytest.fixture(scope='module')
def inverted(write, tmp_path_factory):
    """Checkpoint and config of a model with inverted scores, and its plain twin."""
    folder = tmp_path_factory.mktemp('inverted')
    path, _ = write(folder / 'inverted.pth', calibration=NONE,
                    **{'model.head.type': 'mmcluspro.InvertedHead'})
    plain, _ = write(folder / 'plain.pth', calibration=NONE)
    config = read_config('configs/baseline_shapes.py')
    config.model.head.type = 'mmcluspro.InvertedHead'
    return path, config, plain


@pytest.fixture(scope='module')
def dataset():
    return ShapesCZSL(phase='test', indices=40, pipeline=[
        dict(type='mmpretrain.PackInputs',
             algorithm_keys=['attr_label', 'obj_label', 'pair_label'])])


@pytest.fixture(scope='module')
def answers(inverted, dataset):
    """What validation takes for the best pair of each image, by name."""
    model = load(inverted[0], config=inverted[1]).network
    batch = default_collate([dataset[i] for i in range(len(dataset))])
    with torch.no_grad():
        samples = model.test_step(dict(
            batch, worlds={'closed': Candidates.from_space(model.space)}))
    pairs = model.space.pairs[torch.stack([sample.closed_score for sample in samples]).argmax(1)]
    return [(model.space.attributes[a], model.space.objects[o]) for a, o in pairs.tolist()]


def test_validation_sees_the_inverted_scores(inverted, dataset, answers):
    plain = load(inverted[2], device='cpu')
    other = plain.predict([dataset.get_data_info(i)['img'] for i in range(len(dataset))])
    same = [(best.best.attribute, best.best.object) == own for best, own in zip(other, answers)]
    assert not any(same)


def test_the_inferencer_answers_as_validation(inverted, dataset, answers):
    inferencer = load(inverted[0], device='cpu', config=inverted[1])
    got = inferencer.predict([dataset.get_data_info(i)['img'] for i in range(len(dataset))])
    assert [(answer.best.attribute, answer.best.object) for answer in got] == answers


def test_listed_pairs_and_new_words_are_scored_by_the_head_too(inverted, dataset):
    image = dataset.get_data_info(0)['img']
    listed = [('red', 'star'), ('blue', 'circle'), ('shiny', 'teapot')]
    with pytest.warns(UserWarning, match='Not in the training data'):
        mine, = load(inverted[0], device='cpu', config=inverted[1]).predict(image, pairs=listed)
        plain, = load(inverted[2], device='cpu').predict(image, pairs=listed)
    order = [[(pair.attribute, pair.object) for pair in answer.pairs] for answer in (mine, plain)]
    assert order[0] == order[1][::-1]


def test_pictures_and_demo_answer_as_validation(inverted, dataset, answers, tmp_path):
    inferencer = load(inverted[0], device='cpu', config=inverted[1])
    batch = next(run_phase(inferencer, dataset, [0, 5]))
    space = dataset.space
    demo = Classifier(inferencer)
    for place, row in zip((0, 5), batch.answer.tolist()):
        path = tmp_path / f'{place}.png'
        Image.fromarray(dataset.get_data_info(place)['img'][..., ::-1]).save(path)
        best = demo.ranking(demo.answer(demo.read(str(path)), demo.known_pairs()), 0.0).pairs[0]
        assert (best.attribute, best.object) == answers[place]
        # Pictures choose from the pairs of the phase, so the scores decide, not the names.
        attr, obj = space.pairs[row].tolist()
        scores = inferencer.score(
            inferencer.features([dataset[place]['inputs']]), Candidates.from_space(space)).pair
        assert scores.argmax() == space.index(space.attributes[attr], space.objects[obj])


@pytest.mark.parametrize('head', ['InvertedHead', 'MovingHead', 'NudgedHead'])
@pytest.mark.parametrize('table_only', [False, True])
def test_export_refuses_scores_that_portable_does_not_tell(inverted, tmp_path, head, table_only):
    pytest.importorskip('onnxruntime')
    config = Config(inverted[1].to_dict())
    config.model.head.type = f'mmcluspro.{head}'
    with pytest.raises(ValueError, match=rf'{head}\.portable computes differ from those of '
                       rf'{head}\.score'):
        export_model(inverted[0], tmp_path / 'x.onnx', config=config, table_only=table_only)
    assert not list(tmp_path.iterdir())


def test_export_takes_a_head_that_says_how(inverted, answers, dataset, tmp_path):
    pytest.importorskip('onnxruntime')
    from mmcluspro.export.export_command import open_session
    config = Config(inverted[1].to_dict())
    config.model.head.type = 'mmcluspro.PortableInvertedHead'

    export_model(inverted[0], tmp_path / 'x.onnx', config=config)

    table = dict(np.load(tmp_path / 'x.npz'))
    pixels = np.stack([dataset.get_data_info(i)['img'][..., ::-1] for i in range(len(dataset))])
    features = open_session(tmp_path / 'x.onnx').run(None, {'image': pixels})
    head = load(inverted[0], config=config).network.head
    scores = head.portable().score(
        dict(zip(('attribute', 'object', 'composition'), features)), table)
    best = table['pairs'][scores.argmax(1)]
    assert [(table['attributes'][a], table['objects'][o]) for a, o in best] == answers


def test_a_head_that_learns_from_the_images_answers_alike_everywhere(inverted, dataset, tmp_path):
    config = Config(inverted[1].to_dict())
    config.model.head.type = 'mmcluspro.MovingHead'
    inferencer = load(inverted[2], device='cpu', config=config)
    model, images = load(inverted[2], config=config).network, range(len(dataset))
    pictures = [dataset.get_data_info(i)['img'] for i in images]
    rows = []
    for part in (images[:20], images[20:]):
        with torch.no_grad():
            rows += model.test_step(default_collate([dataset[i] for i in part]))
    best = torch.stack([row.pred_score for row in rows]).argmax(dim=1)
    wanted = [(model.space.attributes[a], model.space.objects[o])
              for a, o in model.space.pairs[best].tolist()]

    for _ in range(2):  # what a call learned is forgotten by the next one
        got = inferencer.predict(pictures, batch_size=20)
        assert [(answer.best.attribute, answer.best.object) for answer in got] == wanted
    for _ in range(2):
        seen = answer_phase(inferencer, dataset, batch_size=20)
        assert [seen.pair_names(row) for row in seen.outcomes.answer] == wanted
    plain = load(inverted[2], device='cpu').predict(pictures, batch_size=20)
    assert [(answer.best.attribute, answer.best.object) for answer in plain] != wanted
    path, demo = tmp_path / 'first.png', Classifier(inferencer)
    Image.fromarray(pictures[0][..., ::-1]).save(path)
    asked = [demo.answer(demo.read(str(path)), demo.known_pairs()).scores.pair for _ in range(2)]
    assert asked[0].equal(asked[1])


def test_the_link_of_a_head_reaches_the_metric(inverted, dataset):
    """Logits of a head of one's own are swept as they are."""
    class LogitHead(ThreePathHead):
        link = 'identity'

        def score(self, feats, candidates):
            return Scores(super().score(feats, candidates).pair.log())

    config = Config(inverted[1].to_dict())
    config.model.head.type = LogitHead
    logits = load(inverted[2], config=config).network
    plain = load(inverted[2]).network
    batch = default_collate([dataset[i] for i in range(len(dataset))])
    numbers = []
    for model in (plain, logits):
        metric = CZSLMetric()
        metric.dataset_meta = dict(space=model.space.to_dict(),
                                   evaluation=Evaluation(link=model.head.link))
        with torch.no_grad():
            samples = model.test_step(batch)
        metric.process(None, [sample.to_dict() for sample in samples])
        numbers.append(metric.evaluate(len(samples)))
    assert numbers[0]['czsl/auc'] == pytest.approx(numbers[1]['czsl/auc'], abs=1e-4)
    assert numbers[0]['czsl/hm'] == pytest.approx(numbers[1]['czsl/hm'], abs=1e-4)
