import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcluspro.visualization.accuracy import (
    PrimitiveAccuracy,
    accuracy_by_class,
    draw_accuracy,
    write_accuracy,
)
from mmcluspro.visualization.style import BRIGHT


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=40))
def test_equals_counting(rows):
    labels, answers = np.array(rows, int).reshape(-1, 2).T

    images, accuracy = accuracy_by_class(labels, answers, 5)

    for c in range(5):
        mine = [answer == c for label, answer in rows if label == c]
        assert images[c] == len(mine)
        assert accuracy[c] == pytest.approx(100 * np.mean(mine) if mine else np.nan, nan_ok=True)


@pytest.fixture
def tables():
    first = np.array([50.0, np.nan, 90.0, 10.0])
    return {
        'Attributes': PrimitiveAccuracy(
            ['dry', 'never', 'wet', 'old'], np.array([4, 0, 10, 20]),
            {'baseline': first, 'ClusPro': first[::-1].copy()}),
        'Objects': PrimitiveAccuracy(
            ['cat'], np.array([34]), {'baseline': np.array([1.0]), 'ClusPro': np.array([2.0])}),
    }


def test_bars_are_sorted_by_the_first_model(tables, legible):
    tables['Attributes'].accuracy['ClusPro'][:] = [5.0, np.nan, 15.0, 25.0]

    figure = draw_accuracy(tables)

    left, right = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ['Attributes', 'Objects']
    assert left.get_xlabel() == 'Accuracy (%)' and left.get_xlim() == (0, 100)
    assert [label.get_text() for label in left.get_yticklabels()] == [
        'wet (10)', 'dry (4)', 'old (20)']
    widths = [[bar.get_width() for bar in bars] for bars in left.containers]
    assert widths == [[90.0, 50.0, 10.0], [15.0, 5.0, 25.0]]
    assert len(right.patches) == 2
    assert left.containers[0][0].get_y() < left.containers[1][0].get_y()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ['baseline', 'ClusPro']
    colors = [bars[0].get_facecolor() for bars in left.containers]
    assert len(set(colors)) == 2 and len(BRIGHT) == len(set(BRIGHT))
    legible(figure)


def test_many_primitives_and_models_stay_legible(legible):
    count = 120
    table = PrimitiveAccuracy([f'primitive {i}' for i in range(count)], np.arange(1, count + 1), {
        f'model {m}': np.linspace(0, 100, count) for m in range(5)})

    figure = draw_accuracy({'Attributes': table, 'Objects': table}, most=30)

    assert figure.axes[0].get_title() == 'Attributes (30 of 120)'
    names = {label.get_text() for label in figure.axes[0].get_yticklabels()}
    assert names == {f'primitive {i} ({i + 1})' for i in range(90, 120)}
    legible(figure)


def test_the_table_has_all_primitives_with_images(tables, tmp_path):
    path = write_accuracy(tables, tmp_path / 'new' / 'a.csv')

    with path.open(encoding='utf-8') as file:
        rows = list(csv.DictReader(file))
    assert [(row['kind'], row['primitive'], row['images'], row['baseline']) for row in rows] == [
        ('Attributes', 'wet', '10', '90.0'), ('Attributes', 'dry', '4', '50.0'),
        ('Attributes', 'old', '20', '10.0'), ('Objects', 'cat', '34', '1.0')]


def test_wrong_input_is_an_error(tables):
    with pytest.raises(ValueError, match='most=0'):
        draw_accuracy(tables, most=0)
    with pytest.raises(ValueError, match='3 answers for 2 labels'):
        accuracy_by_class(np.zeros(2, int), np.zeros(3, int), 1)
    empty = PrimitiveAccuracy(['dry'], np.array([0]), {'m': np.array([np.nan])})
    with pytest.raises(ValueError, match='at least one primitive'):
        draw_accuracy({'Attributes': empty})
