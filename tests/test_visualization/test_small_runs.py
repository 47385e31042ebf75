"""Commands on small real runs: what is missing or asked for in vain is said in words."""
import os
import re

import numpy as np
import pytest
import torch

from mmcluspro import TrainedModel, load
from mmcluspro.cli import main
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.evaluation.curve import Curve
from mmcluspro.visualization.cases import draw_cases
from mmcluspro.visualization.confusion import Confusion
from mmcluspro.visualization.curve_plot import write_curves
from mmcluspro.visualization.make_report import find_checkpoint
from mmcluspro.visualization.options import most_frequent
from mmcluspro.visualization.phase import answer_phase, evenly, run_phase
from mmcluspro.visualization.prototypes import (
    PrototypeImages,
    add_examples,
    prototype_images,
    read_prototype_images,
)
from mmcluspro.visualization.tsne import Cloud, draw_tsne


@pytest.fixture(scope='module')
def baseline_model(baseline):
    return load(baseline, 'cpu')


@pytest.mark.parametrize('run, words', [
    (lambda: draw_cases([], [], columns=0), 'draw_cases needs at least one column, got 0'),
    (lambda: Confusion(['a'], *np.zeros((3, 1), int)).worst(0),
     'The number of classes must be at least 1, got 0'),
    (lambda: most_frequent(torch.tensor([0]), 1, 0),
     'The number of primitives must be at least 1, got 0'),
    (lambda: evenly(3, 0), 'The number of images must be at least 1, got 0')])
def test_numbers_below_one_are_refused(run, words):
    with pytest.raises(ValueError, match=words):
        run()


def test_no_images_and_unknown_phases_are_named(baseline_model):
    with pytest.raises(ValueError, match="phase must be 'train', 'val' or 'test', got 'all'"):
        baseline_model.dataset('all')
    with pytest.raises(ValueError, match='There are no val images to look at'):
        next(run_phase(baseline_model, baseline_model.dataset('val'), []))


@pytest.mark.parametrize('words', [['a', 'b', 'c'], ['a', '--count', '0'], ['a', '--columns', '0']])
def test_cases_are_of_one_or_two_models_and_some_images(words, capsys):
    with pytest.raises(SystemExit):
        main(['cases', *words])
    said = capsys.readouterr().err
    assert ('Give one checkpoint or two, not 3' if 'c' in words else 'must be at least 1') in said


@pytest.mark.parametrize('worlds, flags, words', [
    (('closed', 'closed'), ['--world', 'open'], 'None of the runs was evaluated in the open world'),
    (('open', 'closed'), [], 'Not every run was evaluated in the closed world: choose the other')])
def test_runs_that_lack_a_world_are_not_drawn(worlds, flags, words, tmp_path, capsys):
    curve = Curve(np.array([0.0, 1.0]), np.array([50.0, 0.0]), np.array([0.0, 40.0]))
    for number, world in enumerate(worlds):
        (tmp_path / str(number)).mkdir()
        write_curves({world: curve}, tmp_path / str(number) / 'test_curve.json')
    with pytest.raises(SystemExit):
        main(['curves', str(tmp_path / '0'), str(tmp_path / '1'), *flags])
    assert words in ' '.join(capsys.readouterr().err.split())


def test_checkpoints_of_other_labels_are_refused(cluspro, tmp_path, capsys):
    content = torch.load(cluspro, weights_only=False)
    names = content['meta']['dataset_meta']['space']['attributes']
    content['meta']['dataset_meta']['space']['attributes'] = [*names[:-1], 'zebra']
    torch.save(content, tmp_path / 'other.pth')
    with pytest.raises(SystemExit):
        main(['accuracy', cluspro, str(tmp_path / 'other.pth'), '--names', 'a', 'b'])
    assert 'all checkpoints must be trained on the same data' in ' '.join(
        capsys.readouterr().err.split())


def test_the_newest_best_checkpoint_is_found(tmp_path):
    assert find_checkpoint('gone.pth').name == 'gone.pth'
    with pytest.raises(FileNotFoundError, match=r'has no checkpoint \(\*.pth\). Give the work'):
        find_checkpoint(str(tmp_path))
    for age, name in enumerate(('other.pth', 'epoch_1.pth', 'best_2.pth', 'best_1.pth')):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))
        if age != 2:
            assert find_checkpoint(str(tmp_path)).name == name


def test_a_bias_against_seen_pairs_leaves_unseen_answers(baseline_model):
    test = baseline_model.dataset('test')
    for bias, seen in ((100.0, False), (-100.0, True)):
        found = answer_phase(baseline_model, test, range(0, 90, 9), seen_bias=bias)
        answered = baseline_model.space.seen[torch.as_tensor(found.outcomes.answer)]
        assert (answered == seen).all() and found.index.tolist() == list(range(0, 90, 9))


def test_a_model_without_prototypes_has_examples_only(baseline_model):
    test = baseline_model.dataset('test')
    assert prototype_images(baseline_model, test) == PrototypeImages()
    answers = answer_phase(baseline_model, test, range(0, 40, 10))
    found = PrototypeImages()
    add_examples(found, test, answers, count=9)  # there are four images
    truths = [test.get_data_info(index)['pair_label'] for index in range(0, 40, 10)]
    names = {(test.space.attributes[attr], test.space.objects[obj])
             for attr, obj in test.space.pairs[truths].tolist()}
    assert len(found.examples) == len(found.pictures) == 4
    assert {(item.attribute, item.object) for item in found.examples} == names


def test_training_images_that_cannot_be_read_cost_the_prototypes_only(
        cluspro, tmp_path, monkeypatch):
    opened = TrainedModel.dataset

    def dataset(model, phase, *args, **options):
        if phase == 'train':
            raise ValueError('The image <b>.jpg cannot be read')
        return opened(model, phase, *args, **options)

    monkeypatch.setattr(TrainedModel, 'dataset', dataset)
    main(['report', cluspro, '--out', str(tmp_path / 'report.html')])
    text = (tmp_path / 'report.html').read_text()
    assert 'Prototypes are not shown: The image &lt;b&gt;.jpg cannot be read' in text
    assert 'id="mistakes"' in text and 'id="prototypes"' not in text


@pytest.mark.slow
def test_training_ends_with_a_report_and_a_command_writes_the_same(small_run, tmp_path):
    text = (small_run / 'report.html').read_text()
    metrics = torch.load(next(small_run.glob('best_*.pth')), weights_only=False)['meta']
    assert len(metrics['familiar']['looks']) == 200 and metrics['familiar']['threshold'] > 0
    found = read_prototype_images(small_run / 'prototype_images.json')
    assert set(found.prototypes) == {'attr', 'obj'} and len(found.examples) == 6
    main(['report', str(small_run), '--out', str(tmp_path / 'again.html')])
    again = (tmp_path / 'again.html').read_text()
    assert '200 of ShapesCZSL' in text
    # The config of the checkpoint names all images, the run had 200.
    assert f'{len(ShapesCZSL(phase="test"))} of ShapesCZSL' in again
    for page in (text, again):
        links = re.findall('href="#([a-z]+)"', page)
        assert links == ['numbers', 'curves', 'classes', 'confusions', 'mistakes', 'prototypes',
                         'next']
        assert all(f'<section id="{link}">' in page for link in links)


def test_maps_without_prototypes_have_no_star_and_may_be_silent():
    pytest.importorskip('sklearn')
    features = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    cloud = Cloud(features, np.array([0, 1] * 4))
    figure = draw_tsne([[cloud]], ['Attributes'], ['model'], [['a', 'b']], perplexity=2)
    said = []
    cloud.prototypes, cloud.prototype_labels = features[:2], np.array([0, 1])
    starred = draw_tsne([[cloud]], ['Attributes'], ['model'], [['a', 'b']], perplexity=2,
                        say=said.append)
    names = [[text.get_text() for text in one.axes[0].get_legend().get_texts()]
             for one in (figure, starred)]
    assert names == [['a', 'b'], ['a', 'b', 'prototype']]
    assert said == ['Attributes of model: embedding 8 images']
