import pickle

import pytest

from mmcluspro.datasets import readable_name, resolve_readable


@pytest.mark.parametrize('raw, words', [
    ('Faux.Fur', 'faux fur'),
    ('Boots.Mid-Calf', 'boots mid calf'),
    ('Shoes.Sneakers.and.Athletic.Shoes', 'shoes sneakers and athletic shoes'),
    ('fire_truck', 'fire truck'),
    ('t-shirt', 't shirt'),
    ('wet', 'wet'),
    ('a._-b', 'a b'),
    ('_x_', 'x'),
    ('Größe.Ä', 'größe ä'),
    ('-', '-'),
])
def test_readable_name(raw, words):
    assert readable_name(raw) == words


def test_no_name_of_the_published_lists_becomes_another(real_splits):
    for path in real_splits.rglob('*_pairs.txt'):
        for names in zip(*(line.split() for line in path.read_text().splitlines())):
            assert len({readable_name(name) for name in names}) == len(set(names))


def test_the_published_rule_reads_one_name_of_the_published_lists_differently(real_splits):
    names = {name for path in real_splits.rglob('*_pairs.txt')
             for name in path.read_text().split()}
    dots = resolve_readable('dots')
    assert [name for name in names if dots(name) != readable_name(name)] == ['Boots.Mid-Calf']
    assert dots('Boots.Mid-Calf') == 'boots mid-calf' and dots('.') == '.'
    assert resolve_readable('words') is readable_name


@pytest.mark.parametrize('rule, raw, words', [
    ('word2vec', 'Shoes.Sneakers.and.Athletic.Shoes', 'sneakers'),
    ('word2vec', 'Boots.Mid-Calf', 'midcalf boots'), ('word2vec', 'Canvas', 'Canvas'),
    ('word2vec', 'Nubuck', 'Nubuck'), ('word2vec', 'fire_truck', 'fire truck'),
    ('word2vec', '-', '-'), ('glove', 'Nubuck', 'grainy leather'), ('glove', 'Canvas', 'canvas'),
    ('glove', 'Faux.Fur', 'fake fur')])
def test_rules_of_the_published_loaders_of_word_vectors(rule, raw, words):
    assert resolve_readable(rule)(raw) == words


def test_a_dict_overrides_single_names_and_pickles():
    words = pickle.loads(pickle.dumps(resolve_readable({'Hair.Calf': 'calf hair'})))

    assert [words('Hair.Calf'), words('Faux.Fur')] == ['calf hair', 'faux fur']


@pytest.mark.parametrize('readable', [str.upper, 'string.capwords'])
def test_a_function_overrides_all(readable):
    assert resolve_readable(readable)('wet') in ('WET', 'Wet')


def test_nothing_given_is_the_default():
    assert resolve_readable() is readable_name


@pytest.mark.parametrize('readable, message', [
    ({'Hair.Claf': 'x'}, "'Hair.Claf'.*did you mean 'Hair.Calf'"),
    ({'q': 'x', 'r': 'y'}, '1 more'),
    ('no_dots', 'no_dots'),
    ('string.nothing_there', 'nothing_there'),
    ('string.digits', 'not a function'),
    (7, 'got 7'),
])
def test_a_wrong_override_is_named(readable, message):
    with pytest.raises(ValueError, match=f'readable.*{message}'):
        resolve_readable(readable, names=['Hair.Calf', 'wet'])
