"""Confusions against counts by hand, and pictures that can be read."""
import csv

import numpy as np
import pytest

from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation import Outcomes
from mmcluspro.visualization.confusion import (
    Confusion,
    confusions,
    draw_confusions,
    write_confusions,
)
from mmcluspro.visualization.phase import PhaseAnswers

SPACE = CompositionSpace(['=wet', 'dry'], ['cat', 'dog'], [[0, 0], [0, 1], [1, 0]],
                         [True, True, False])
TARGET, ANSWER = np.array([0, 0, 0, 1, 2, 2]), np.array([0, 1, 2, 1, 0, 0])
SURE = np.array([0.9, 0.5, 0.8, 0.7, 0.8, 0.6])


@pytest.fixture
def answers():
    return PhaseAnswers(SPACE, np.arange(6) * 10, Outcomes(
        TARGET, ANSWER, SURE, SPACE.seen.numpy()[TARGET]))


def test_the_most_confident_mistakes_come_first(answers):
    assert answers.mistakes() == [2, 4, 5, 1]  # of equal ones the first image
    assert answers.mistakes(2) == [2, 4]
    assert answers.seen.tolist() == [True, True, True, True, False, False]
    assert answers.pair_names(2) == ('dry', 'cat')


def test_counts_of_a_case_made_by_hand(answers):
    found = confusions(answers)
    assert found['attributes'].matrix(np.array([0, 1])).tolist() == [[3, 1, 0], [2, 0, 0]]
    assert found['objects'].matrix(np.array([0, 1])).tolist() == [[4, 1, 0], [0, 1, 0]]
    pairs = found['pairs']
    assert pairs.matrix(np.array([0, 1, 2])).tolist() == [[1, 1, 1, 0], [0, 1, 0, 0], [2, 0, 0, 0]]
    # Wrong answers about '=wet cat': 4, 'dry cat': 3, '=wet dog': 1.
    assert [pairs.names[row] for row in pairs.worst(2)] == ['=wet cat', 'dry cat']
    assert pairs.matrix(pairs.worst(2)).tolist() == [[1, 1, 1], [2, 0, 0]]


def test_all_mistakes_are_in_the_file_and_no_cell_is_a_formula(answers, tmp_path):
    with write_confusions(confusions(answers), tmp_path / 'c.csv').open() as file:
        rows = list(csv.DictReader(file))
    pairs = [row for row in rows if row['kind'] == 'pairs']
    assert pairs[0] == dict(kind='pairs', truth='dry cat', answer="'=wet cat", images='2', of='2')
    assert sum(int(row['images']) for row in pairs) == int((TARGET != ANSWER).sum())


@pytest.mark.parametrize('classes', [1, 3, 40])
def test_pictures_are_legible(classes, legible):
    generator = np.random.default_rng(0)
    names = [f'counterrevolutionary misunderstanding {i}' if i % 3 == 0 else f'red {i}'
             for i in range(classes)]
    truth = generator.integers(0, classes, 400)
    answer = np.where(generator.random(400) < 0.7, truth, generator.integers(0, classes, 400))

    figure = draw_confusions(dict(pairs=Confusion.of(truth, answer, names)))

    legible(figure, 7.4)
    axes, = figure.axes
    assert len(axes.get_yticklabels()) == min(classes, 16)
    assert ('16 of 40' in figure.texts[0].get_text()) == (classes == 40)


def test_the_numbers_of_a_picture_are_percent_of_the_row(answers):
    axes, = draw_confusions(dict(attributes=confusions(answers)['attributes'])).axes
    shown = {(int(text.get_position()[1]), int(text.get_position()[0])): text.get_text()
             for text in axes.texts}
    assert shown == {(0, 0): '75', (0, 1): '25', (1, 0): '100'}
    assert [label.get_text() for label in axes.get_yticklabels()] == ['=wet (4)', 'dry (2)']
