"""Candidates, and the names of what the parts of a model hand on."""
import pytest
import torch

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models import Candidates
from mmcluspro.models.structures import Features, as_features
from mmcluspro.models.text import CLIPText

SPACE = CompositionSpace(list('abc'), list('wxyz'), [[0, 0], [0, 2], [1, 1], [2, 3]],
                         [True, False, True, True])


def test_the_pairs_of_a_space_in_its_order():
    got = Candidates.from_space(SPACE)

    assert (got.attributes, got.objects) == (SPACE.attributes, SPACE.objects)
    assert got.pairs.equal(SPACE.pairs) and got.seen.equal(SPACE.seen) and len(got) == 4
    assert got.text_pairs.equal(got.pairs)
    assert got.all_names and not got.all_pairs
    assert Candidates.from_space(SPACE.open_world()).all_pairs


def test_the_seen_pairs_alone():
    got = Candidates.from_space(SPACE, seen_only=True)

    assert got.pairs.equal(SPACE.train_pairs) and bool(got.seen.all())


def test_nothing_is_copied_where_it_is_there_already():
    got = Candidates.from_space(SPACE)

    assert got.to('cpu') is got
    assert got.to('meta').pairs.device.type == 'meta'


@pytest.fixture(scope='module')
def text():
    return CLIPText(['old', 'red'], ['cat', 'dog', 'sofa'], arch='tiny_clip')


def test_listed_names_keep_those_that_occur_and_add_the_new_ones(text):
    space = CompositionSpace(['old', 'red'], ['cat', 'dog', 'sofa'], [[0, 0], [1, 2]],
                             [True, False])
    with pytest.warns(UserWarning, match="data: object 'teapot'"):
        got = Candidates.from_names(
            text, space, [('red', 'teapot'), ('red', 'cat'), ('old', 'cat'), ('red', 'sofa')])

    assert (got.attributes, got.objects) == (('old', 'red'), ('cat', 'sofa', 'teapot'))
    names = [(got.attributes[a], got.objects[o]) for a, o in got.pairs.tolist()]
    assert names == [('old', 'cat'), ('red', 'cat'), ('red', 'sofa'), ('red', 'teapot')]
    assert got.seen.tolist() == [True, False, False, False]
    assert got.text_objects.tolist() == [0, 2, 3] and text.objects[3] == 'teapot'
    assert got.text_pairs.tolist() == [[0, 0], [1, 0], [1, 2], [1, 3]]
    text.restore()


@pytest.mark.parametrize('shapes, tokens, paths', [
    ([(2, 8)], False, ['composition']),
    ([(2, 5, 8), (2, 8)], True, ['composition']),
    ([(2, 8)] * 3, False, ['attribute', 'object', 'composition']),
    ([(2, 5, 8), *[(2, 8)] * 3], True, ['attribute', 'object', 'composition']),
])
def test_tuples_of_other_necks_get_names(shapes, tokens, paths):
    outputs = tuple(torch.randn(shape) for shape in shapes)

    got = as_features(outputs)

    assert list(got.paths) == paths and len(got) == 2
    assert got.composition is outputs[-1]
    assert (got.tokens is outputs[0]) == tokens
    assert list(got.primitives) == (['attr', 'obj'] if len(paths) == 3 else [])
    assert as_features(got) is got


@pytest.mark.parametrize('shapes', [[(2, 8), (2, 8)], [(2, 8), (2, 5, 8)], [(2, 8, 4, 4)]])
def test_what_has_no_names_is_refused(shapes):
    with pytest.raises(ValueError, match=r'f_a, f_o and f_c, each of shape \(B, D\)'):
        as_features([torch.randn(shape) for shape in shapes])


def test_features_have_names_and_no_places():
    with pytest.raises(TypeError):
        Features(torch.ones(1, 2))[-1]
