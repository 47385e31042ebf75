import numpy as np
import pytest
from matplotlib.colors import to_rgb

from mmcluspro.visualization.style import MUTED
from mmcluspro.visualization.tsne import class_colors, edge_of, named_color


@pytest.mark.parametrize(('name', 'rgb'), [
    ('red', (1, 0, 0)), ('White', (1, 1, 1)), ('Navy_Blue', (0, 0, 0.3)),
    ('off-white', (1, 1, 0.9)), ('sea green', (0.2, 0.8, 0.5)),
    ('black', (0, 0, 0)), ('Grey', (0.55, 0.55, 0.55))])
def test_a_name_has_its_colour(name, rgb):
    assert np.abs(np.array(to_rgb(named_color(name))) - rgb).max() < 0.25


@pytest.mark.parametrize('name', ['striped', 'wet', 'none', 'C0', '0.5', 'k', '', 'tab:blue'])
def test_other_words_have_none(name):
    assert named_color(name) is None


def test_names_of_colours_are_used_where_half_of_the_classes_have_one():
    mixed = class_colors(['red', 'blue', 'striped', 'dotted'])
    assert mixed[:2] == [named_color('red'), named_color('blue')]
    assert mixed[2:] == list(MUTED[:2])
    assert class_colors(['orange', 'cat', 'dog']) == list(MUTED[:3])
    many = class_colors([str(i) for i in range(20)])
    assert len(many) == 20 and many[0] == many[len(MUTED)]


def test_light_marks_have_a_dark_edge():
    assert edge_of('#ffffff') == edge_of(named_color('yellow')) == '#555555'
    assert edge_of('#332288') == '#332288'
