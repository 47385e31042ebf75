"""Pictures and reports where something is missing, or asked for in vain."""
import argparse
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from mmcluspro.artefact import TrainedModel, phases
from mmcluspro.artefact.prototype_images import NAME, PrototypeImages, as_jpeg
from mmcluspro.cli.pictures import parse_cases
from mmcluspro.datasets import CompositionSpace
from mmcluspro.errors import FileError
from mmcluspro.evaluation import Outcomes
from mmcluspro.models import Candidates
from mmcluspro.models.prototypes import PrototypeBank
from mmcluspro.visualization import (
    curve_plot,
    make_report,
    options,
    phase_answers,
    phase_run,
    thumbnails,
)
from mmcluspro.visualization import run_hooks as report_hook
from mmcluspro.visualization import tsne as draw_tsne
from mmcluspro.visualization.cases import draw_cases
from mmcluspro.visualization.confusion import Confusion
from mmcluspro.visualization.phase_answers import PhaseAnswers
from mmcluspro.visualization.primitives import most_frequent
from mmcluspro.visualization.prototype_plot import check_banks
from mmcluspro.visualization.report import report_build
from mmcluspro.visualization.report.report_page import Report
from mmcluspro.visualization.report.report_parts import charts
from mmcluspro.visualization.report.run_history import RunFiles
from mmcluspro.visualization.run_hooks import ReportHook
from mmcluspro.visualization.tsne import Cloud
from mmcluspro.visualization.tsne import draw_tsne as draw

SPACE = CompositionSpace(['a', 'b'], ['x', 'y'], [[0, 0], [0, 1], [1, 0]], [True, True, False])


@pytest.mark.parametrize('run, words', [
    (lambda: draw_cases([], [], columns=0), 'draw_cases needs at least one column, got 0'),
    (lambda: Confusion(['a'], *np.zeros((3, 1), int)).worst(0),
     'The number of classes must be at least 1, got 0'),
    (lambda: most_frequent(torch.tensor([0]), 1, 0),
     'The number of primitives must be at least 1, got 0'),
    (lambda: phases.phase_dataset(None, {}, 'all'),
     "phase must be 'train', 'val' or 'test', got 'all'"),
    (lambda: phase_run.evenly(3, 0), 'The number of images must be at least 1, got 0'),
    (lambda: next(phase_run.image_batches(None, SimpleNamespace(phase='val'), [])),
     'There are no val images to look at'),
])
def test_numbers_below_one_and_unknown_phases_are_refused(run, words):
    with pytest.raises(ValueError, match=words):
        run()


@pytest.mark.parametrize('words', [['a', 'b', 'c'], ['a', '--count', '0'], ['a', '--columns', '0']])
def test_cases_are_of_one_or_two_models_and_some_images(words, capsys):
    with pytest.raises(SystemExit):
        parse_cases(words)
    said = capsys.readouterr().err
    assert ('Give one checkpoint or two, not 3' if 'c' in words else 'must be at least 1') in said


@pytest.mark.parametrize('stored, words', [
    ([{}, {}], 'None of the runs was evaluated in the both world'),
    ([dict(open=SimpleNamespace(auc=1, hm=2, curve=None)), {}],
     'Not every run was evaluated in the open world: choose the other one with --world')])
def test_runs_that_lack_a_world_are_not_drawn(stored, words, monkeypatch):
    monkeypatch.setattr(curve_plot, 'read_run', lambda run, phase: stored[int(run)])
    with pytest.raises(ValueError, match=words):
        curve_plot.main(['0', '1'])


def test_prototypes_that_were_never_made_are_named():
    model = only_head(clustered={'attr': 1}, prototypes={})
    with pytest.raises(ValueError, match='The prototypes of x.pth were never initialised'):
        check_banks(model, dict(attr=[0]), 'x.pth')
    with pytest.raises(ValueError, match='x.pth has no prototypes of objects'):
        check_banks(model, dict(obj=[0]), 'x.pth')
    check_banks(model, dict(attr=[], obj=[]), 'x.pth')


def test_the_newest_best_checkpoint_is_found(tmp_path):
    assert make_report.find_checkpoint('gone.pth').name == 'gone.pth'
    with pytest.raises(FileNotFoundError, match=r'has no checkpoint \(\*.pth\). Give the work'):
        make_report.find_checkpoint(str(tmp_path))
    for age, name in enumerate(('other.pth', 'epoch_1.pth', 'best_2.pth', 'best_1.pth')):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))
        if age != 2:
            assert make_report.find_checkpoint(str(tmp_path)).name == name


@pytest.mark.parametrize('banks', [{}, {'attr': 1}])
def test_a_report_of_a_model_without_prototypes_has_none(banks, monkeypatch, tmp_path, capsys):
    made = []
    model = only_head(prototypes=banks)
    monkeypatch.setattr(make_report, 'open_checkpoints', lambda paths, args: ([model], ['image']))
    monkeypatch.setattr(make_report, 'open_phase', lambda model, phase, args: phase)
    monkeypatch.setattr(make_report, 'answer_phase', lambda *args, **own: 'answers')
    monkeypatch.setattr(make_report, 'prototype_images',
                        lambda model, data, **own: made.append(data) or PrototypeImages())
    monkeypatch.setattr(make_report, 'add_examples', lambda found, *args: made.append('examples'))
    monkeypatch.setattr(make_report, 'build_report', lambda *args: args)
    path = tmp_path / 'report.html'
    path.write_text('x')
    monkeypatch.setattr(make_report, 'leave_report', lambda report, *args: path)
    make_report.main([str(tmp_path / 'x.pth')])
    assert made == (['train', 'examples'] if banks else ['examples'])
    assert str(path) in capsys.readouterr().out


class Model(nn.Module):
    """As much of a classifier as a report reads."""

    def __init__(self, trained):
        super().__init__()
        self.backbone = nn.Linear(2, 2)
        self.head = nn.Module()
        self.head.known_candidates = SPACE
        self.head.prototypes = dict(attr=SimpleNamespace(offsets=torch.tensor([0, 2, 4])))
        self.requires_grad_(trained)


def test_a_report_without_answers_shows_the_model_only():
    report = report_build.build_report('run', 'x.pth', RunFiles(),
                                       TrainedModel(Model(False), {}))
    names = [name for name, _ in report.facts]
    assert names == ['Model', 'Labels', 'Pairs', 'Made'] and report.images == 0
    assert dict(report.facts)['Pairs'] == '2 seen, 1 unseen' and report.offsets == {}
    found = PrototypeImages()
    report = report_build.build_report('run', 'x.pth', RunFiles(),
                                       TrainedModel(Model(True), {}), prototypes=found)
    assert dict(report.facts)['Trained parameters'] == '0.00 million'
    assert report.prototypes is found and report.offsets == dict(attr=[0, 2, 4])


@pytest.mark.parametrize('pictures', [False, True])
def test_pictures_are_left_beside_the_report_where_there_are_some(pictures, tmp_path):
    from PIL import Image
    report = Report('run')
    if pictures:
        report.prototypes.pictures = [as_jpeg(Image.new('RGB', (4, 4)), 4)]
    path = report_build.leave_report(report, tmp_path / 'report.html')
    assert path.is_file() and (tmp_path / NAME).exists() is pictures


def test_charts_show_validations_of_more_than_one_epoch():
    one = charts(RunFiles(validations={'czsl/hm': [(1, 20.0)]}))
    two = charts(RunFiles(validations={'czsl/hm': [(1, 20.0), (2, 30.0)]}))
    assert 'Validations' not in one and 'Validations' in two and 'validation, percent' in two


def test_other_ranks_write_no_report(tmp_path, monkeypatch):
    monkeypatch.setattr(report_hook, 'leave_report', None)  # calling it would fail
    said = []
    logger = SimpleNamespace(log=lambda *args: said.append(args), info=said.append)
    runner = SimpleNamespace(rank=1, work_dir=str(tmp_path), logger=logger)
    ReportHook().after_test_epoch(runner)
    assert said == []


@pytest.mark.parametrize('metrics', [[], ['other']])
def test_a_report_of_a_test_without_our_metric_has_no_answers(metrics, monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(TrainedModel, 'dataset', lambda *args: 'train')
    monkeypatch.setattr(report_hook, 'prototype_images', lambda *args, **own: PrototypeImages())
    monkeypatch.setattr(report_hook, 'add_examples', None)
    monkeypatch.setattr(report_hook, 'build_report',
                        lambda *args: made.append(args) or Report('run'))
    runner = SimpleNamespace(
        model=Model(True), test_dataloader=SimpleNamespace(dataset='test'), cfg={},
        test_evaluator=SimpleNamespace(metrics=metrics), work_dir=str(tmp_path), _load_from=None,
        message_hub=SimpleNamespace(runtime_info={}))
    assert ReportHook()._report(runner).notes == []
    assert made[0][1] == '' and made[0][4] is None and made[0][5] == 'test'


def test_maps_without_prototypes_have_no_star_and_may_be_silent():
    features = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    cloud = Cloud(features, np.array([0, 1] * 4))
    figure = draw([[cloud]], ['Attributes'], ['model'], [['a', 'b']], perplexity=2)
    said = []
    cloud.prototypes, cloud.prototype_labels = features[:2], np.array([0, 1])
    starred = draw([[cloud]], ['Attributes'], ['model'], [['a', 'b']], perplexity=2,
                   say=said.append)
    names = [[text.get_text() for text in one.axes[0].get_legend().get_texts()]
             for one in (figure, starred)]
    assert names == [['a', 'b'], ['a', 'b', 'prototype']]
    assert said == ['Attributes of model: embedding 8 images']


class Data:
    """Three images of the space."""

    space, phase = SPACE, 'test'

    def __len__(self):
        return 3


@pytest.fixture
def tsne(monkeypatch):
    """Runs `mmcluspro tsne` on given features; returns what would be drawn."""
    pytest.importorskip('sklearn')

    def run(features, *words):
        drawn = []
        batch = SimpleNamespace(features=features, labels=dict(
            attr=torch.tensor([0, 1, 1]), obj=torch.tensor([0, 0, 0])))
        model = only_head(clustered={})
        monkeypatch.setattr(draw_tsne, 'open_checkpoints', lambda paths, args: ([model], Data()))
        monkeypatch.setattr(draw_tsne, 'run_phase', lambda *args, **own: [batch])
        monkeypatch.setattr(draw_tsne, 'draw_tsne', lambda *args: drawn.append(args))
        monkeypatch.setattr(draw_tsne, 'save_and_say', lambda *args: None)
        draw_tsne.main(['run/x.pth', *words])
        return drawn[0]

    return run


def test_maps_show_the_asked_or_the_most_frequent_names(tsne):
    features = dict(attr=torch.randn(3, 2), obj=torch.randn(3, 2))
    _, rows, _, classes, *_ = tsne(features)
    assert rows == ['Attributes', 'Objects'] and classes == [['a', 'b'], ['x']]
    clouds, rows, _, classes, *_ = tsne(features, '--primitives', 'b')
    assert rows == ['Attributes'] and classes == [['b']] and len(clouds[0][0].features) == 2
    with pytest.raises(ValueError, match='run has no attribute and object features: it has one '
                       'path only'):
        tsne({})


def flags(**own):
    return argparse.Namespace(**dict(dict(
        batch_size=4, cfg_options=None, config=None, data_root='here', device='cpu', phase='test',
        imports=(), weights=None, trust=False), **own))


def test_checkpoints_of_other_labels_are_refused(monkeypatch):
    other = CompositionSpace(['c'], ['x'], [[0, 0]], [True])
    monkeypatch.setattr(options, '_open', lambda path, args, alone: SimpleNamespace(
        space=SPACE if path == 'a.pth' else other))
    monkeypatch.setattr(options, 'open_phase', lambda model, phase, args: Data())
    models, _ = options.open_checkpoints(['a.pth', 'a.pth'], flags())
    assert len(models) == 2
    with pytest.raises(ValueError, match='b.pth knows 1 attributes and 1 objects, the test images '
                       'of a.pth have 2 and 2, or others: all checkpoints must be trained on the '
                       'same data'):
        options.open_checkpoints(['a.pth', 'b.pth'], flags())


@pytest.mark.parametrize('stored, config, refused, calls', [
    (False, None, False, [None]), (True, 'own.py', False, ['cfg']),
    (True, 'own.py', True, ['cfg', None]), (False, 'own.py', False, [None])])
def test_a_config_is_used_where_features_are_stored(stored, config, refused, calls, monkeypatch):
    asked = []

    def load(path, device, config=None, **own):
        asked.append(config)
        if config and refused:
            raise ValueError('changed after the training')
        return 'model'

    monkeypatch.setattr(options, 'load', load)
    monkeypatch.setattr(options, 'model_options', lambda args: dict(config=1, weights='x'))
    monkeypatch.setattr(options, '_config', lambda args: 'cfg')
    monkeypatch.setattr(options, '_has_features', lambda config: stored)
    assert options._open('x.pth', flags(config=config), alone=True) == 'model' and asked == calls


@pytest.mark.parametrize('config, calls', [('own.py', [None, 'cfg']), (None, [None])])
def test_a_backbone_of_the_users_own_comes_from_the_config(config, calls, monkeypatch):
    asked = []

    def load(path, device, config=None, **own):
        asked.append(config)
        if not config:
            raise FileError('x.pth', 'the backbone is not part of it', 'Give the config.')
        return 'model'

    monkeypatch.setattr(options, 'load', load)
    monkeypatch.setattr(options, 'model_options', lambda args: dict(config=1, weights='x'))
    monkeypatch.setattr(options, '_config', lambda args: 'cfg')
    monkeypatch.setattr(options, '_has_features', lambda config: False)
    if config:
        assert options._open('x.pth', flags(config=config), alone=True) == 'model'
    else:
        with pytest.raises(FileError, match='the backbone is not part of it'):
            options._open('x.pth', flags(), alone=True)
    assert asked == calls


def test_features_of_the_training_are_for_models_that_read_them(monkeypatch):
    built = []
    monkeypatch.setattr(phases.DATASETS, 'build', built.append)
    config = dict(test_dataloader=SimpleNamespace(dataset=argparse.Namespace()))
    config['test_dataloader'].dataset = type('D', (dict, ), dict(pipeline=[]))(
        type='mmcluspro.UTZappos', features='folder')
    model = nn.Module()
    phases.phase_dataset(model, {}, 'test', config)
    model.tower = object.__new__(phases.CachedFeatures)
    nn.Module.__init__(model.tower)
    phases.phase_dataset(model, {}, 'test', config)
    assert ['features' in fields for fields in built] == [False, True]
    assert built[0]['data_root'] == 'data/ut-zap50k' and built[0]['test_mode'] is True


def only_head(**fields):
    return TrainedModel(SimpleNamespace(head=SimpleNamespace(**fields)), {})


def test_no_prototypes_have_no_pictures():
    bank = SimpleNamespace(initialised=torch.tensor(False))
    model = only_head(prototypes=dict(attr=bank))
    assert thumbnails.prototype_images(model, None) == PrototypeImages()


def test_examples_end_with_the_images(monkeypatch):
    monkeypatch.setattr(thumbnails, 'picture', lambda data, index: np.zeros((4, 4, 3), np.uint8))
    target = np.array([0, 1, 2])
    answers = PhaseAnswers(SPACE, np.arange(3), Outcomes(
        target, np.array([0, 0, 0]), np.ones(3), SPACE.seen.numpy()[target]))
    few, many = PrototypeImages(), PrototypeImages()
    thumbnails.add_examples(few, None, answers, count=2)
    thumbnails.add_examples(many, None, answers, count=9)
    assert len(few.examples) == len(few.pictures) == 2
    assert sorted((item.attribute, item.object, item.seen) for item in many.examples) == [
        ('a', 'x', True), ('a', 'y', True), ('b', 'x', False)]


def test_branches_without_a_bank_have_no_pictures(monkeypatch):
    torch.manual_seed(0)
    bank = PrototypeBank(2, 3, num_prototypes=1)
    features, labels = torch.eye(3)[:2], torch.tensor([0, 1])
    bank.initialise(features, labels)
    model = only_head(prototypes=dict(attr=bank))
    monkeypatch.setattr(thumbnails, 'image_batches', lambda *args: [
        (torch.tensor([0, 1]), None, dict(attr=labels, obj=labels))])
    monkeypatch.setattr(thumbnails, 'unit_features', lambda feats: dict(attr=features,
                                                                        obj=features))
    monkeypatch.setattr(thumbnails, 'picture', lambda data, index: np.zeros((4, 4, 3), np.uint8))
    found = thumbnails.prototype_images(model, Data(), count=1)
    assert list(found.prototypes) == ['attr'] and len(found.pictures) == 2
    assert [row.share for row in found.prototypes['attr'].values()] == [1.0, 1.0]


@pytest.mark.parametrize('seen_bias, answer', [(None, 0), (0.0, 0), (1.0, 2)])
def test_a_bias_against_seen_pairs_changes_answers(seen_bias, answer, monkeypatch):
    model = only_head(known_candidates=Candidates.from_space(SPACE), link='log')
    labels = dict(attr=torch.tensor([1]), obj=torch.tensor([0]))
    scores = torch.tensor([[0.5, 0.1, 0.4]])
    monkeypatch.setattr(phase_answers, 'scored_batches', lambda *args: [
        (torch.tensor([7]), None, labels, scores)])
    found = phase_answers.answer_phase(model, None, seen_bias=seen_bias)
    assert found.outcomes.answer.tolist() == [answer] and found.index.tolist() == [7]
