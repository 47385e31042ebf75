"""The text boxes: what is read, and what is said when it cannot be."""
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mmcluspro.demo import logic
from mmcluspro.demo.logic import cross_pairs, name_text, pair_text, parse_names, parse_pairs


@pytest.mark.parametrize('text', ['red\nblue', 'red, blue', ' red ,\n\n  blue,', 'red\r\nblue\r\n'])
def test_names_stand_on_lines_or_between_commas(text):
    assert parse_names(text, 'attribute') == ['red', 'blue']


def test_a_name_may_have_several_words():
    assert parse_names('faux  fur\nleather', 'attribute') == ['faux fur', 'leather']


@pytest.mark.parametrize('text', ['', ' \n ', ',,\n,'])
def test_an_empty_list_of_names_says_which(text):
    with pytest.raises(ValueError, match='list of objects is empty'):
        parse_names(text, 'object')


def test_a_repeated_name_is_named():
    with pytest.raises(ValueError, match='list of attributes, "red" occurs more than once'):
        parse_names('red, blue\nred', 'attribute')


@pytest.mark.parametrize('text, pairs', [
    ('wet cat\ndry dog', [('wet', 'cat'), ('dry', 'dog')]),
    ('wet, cat\n\n  dry   dog \n', [('wet', 'cat'), ('dry', 'dog')]),
    ('faux fur, ankle boots', [('faux fur', 'ankle boots')]),
])
def test_pairs_stand_one_a_line(text, pairs):
    assert parse_pairs(text) == pairs


@pytest.mark.parametrize('text, words', [
    ('', 'there is no pair'),
    ('wet cat\ncat', "line 2: expected two words, got 'cat'"),
    ('faux fur boots', 'line 1: expected two words'),
    ('wet, cat, dog', 'line 1: expected two names with one comma'),
    ('wet,', 'line 1: a name is empty'),
    ('wet cat\n\nwet, cat', "line 3: 'wet, cat' is already in line 1"),
])
def test_what_is_no_list_of_pairs_is_said_in_words(text, words):
    with pytest.raises(ValueError, match=words):
        parse_pairs(text)


def test_a_long_line_is_shortened_in_the_message():
    with pytest.raises(ValueError, match=re.escape('x' * 60 + '…')):
        parse_pairs('x' * 5000)


name = st.lists(st.text('abcXÄ.-#,;"', min_size=1), min_size=1, max_size=3).map(' '.join)


@given(st.lists(st.tuples(name, name), min_size=1, unique=True), st.booleans())
@example([('attribute', 'object')], False)
@example([('#1', 'star'), ('a,b', 'arrow'), ('c #d', '5" nail'), ('"', ';')], False)
def test_what_is_written_is_read_back(pairs, header):
    assert parse_pairs(pair_text([('attribute', 'object')] * header + pairs)
                       ) == [('attribute', 'object')] * header + pairs


@given(st.lists(name, min_size=1, unique=True))
def test_names_that_are_written_are_read_back(names):
    assert parse_names(name_text(names), 'attribute') == names


def test_an_open_quote_in_a_list_of_names_is_named():
    with pytest.raises(ValueError, match='list of objects, line 2: a double quote is not closed'):
        parse_names('cat\n"wet, dog', 'object')


def test_all_pairs_of_two_lists():
    assert cross_pairs(['a', 'b'], ['x', 'y']) == [('a', 'x'), ('a', 'y'), ('b', 'x'), ('b', 'y')]


def test_too_many_pairs_are_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr(logic, 'MAX_PAIRS', 3)
    for make in (lambda: cross_pairs(['a', 'b'], ['x', 'y']),
                 lambda: parse_pairs('a x\na y\nb x\nb y')):
        with pytest.raises(ValueError, match='4 pairs; the page takes up to 3'):
            make()
