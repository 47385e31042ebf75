import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcluspro.visualization.cases import Case, choose_cases, draw_cases, outcome_groups
from mmcluspro.visualization.style import RIGHT, WRONG

IMAGE = np.zeros((8, 8, 3), np.uint8)


@pytest.mark.parametrize(('answer', 'colors', 'sign'), [
    (('wet', 'cat'), (RIGHT, RIGHT), '✓'),
    (('dry', 'cat'), (WRONG, RIGHT), '✗'),
    (('wet', 'dog'), (RIGHT, WRONG), '✗'),
    (('dry', 'dog'), (WRONG, WRONG), '✗'),
])
@pytest.mark.parametrize('columns', [3, 12])  # one line an answer, and two
def test_right_words_are_green_and_wrong_ones_red(answer, colors, sign, columns, legible):
    case = Case(IMAGE, ('wet', 'cat'), [answer])

    figure = draw_cases([('A title', [case])], ['ours'], columns)

    texts = [(text.get_text(), text.get_color()) for text in figure.texts]
    for word in zip(answer, colors):
        assert word in texts
    assert (sign, RIGHT if sign == '✓' else WRONG) in texts
    black = [text for text, color in texts if color == 'black']
    assert {'A title', 'truth', 'ours', 'wet', 'cat'} <= set(black)
    legible(figure)


def test_the_probability_of_one_answer_stands_in_the_picture(legible):
    case = Case(IMAGE, ('wet', 'cat'), [('dry', 'cat')], True, 0.934)
    figure = draw_cases([('Mistakes', [case])], ['mine'])
    assert [text.get_text() for text in figure.axes[0].texts] == ['unseen', '93%']
    legible(figure, 7.4)


def test_long_names_and_many_cases_stay_legible(legible):
    truth, answer = ('Faux.Leather', 'Boots.Knee.High'), ('Suede', 'Shoes.Clogs.and.Mules')
    cases = [Case(IMAGE, truth, [truth, answer], unseen=bool(i % 2)) for i in range(8)]

    figure = draw_cases([('Only ClusPro is right', cases), ('Both are wrong', [])],
                        ['baseline', 'a rather long name of a model'], columns=6)

    assert len(figure.axes) == 8
    assert [len(axes.texts) for axes in figure.axes] == [0, 1] * 4
    assert 'no such image' in [text.get_text() for text in figure.texts]
    legible(figure)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30))
def test_every_image_is_in_the_group_of_who_is_right(rights):
    first, second = np.array(rights, bool).reshape(-1, 2).T

    groups = outcome_groups(first, second)

    expected = {(True, True): 'both_right', (True, False): 'failure', (False, True): 'success',
                (False, False): 'both_wrong'}
    assert sum(map(len, groups.values())) == len(rights)
    for index, pair in enumerate(rights):
        assert index in groups[expected[pair]]


def test_chosen_cases_alternate_and_differ():
    pairs = np.arange(200) % 10
    seen = pairs < 5
    candidates = np.arange(0, 200, 2)  # pairs 0, 2, 4 are seen; 6, 8 are not

    chosen = choose_cases(candidates, pairs, seen, 6, seed=3)

    assert set(chosen) <= set(candidates.tolist()) and len(set(chosen)) == 6
    assert seen[chosen].tolist() == [True, False, True, False, True, False]
    assert len(set(pairs[chosen])) == 5  # there are no more
    assert chosen == choose_cases(candidates, pairs, seen, 6, seed=3)
    assert chosen != choose_cases(candidates, pairs, seen, 6, seed=4)


@pytest.mark.parametrize(('candidates', 'count', 'expected'), [([], 3, 0), ([4], 3, 1)])
def test_fewer_candidates_than_asked_for(candidates, count, expected):
    every = np.arange(5)

    assert len(choose_cases(np.array(candidates, int), every, every > 2, count)) == expected
