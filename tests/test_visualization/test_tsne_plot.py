import sys

import numpy as np
import pytest

from mmcluspro.visualization.tsne import Cloud, draw_tsne, embed, separation

pytest.importorskip('sklearn')


def blobs(num=60, classes=3, spread=0.1, seed=0):
    """Points around ``classes`` directions, unit norm."""
    generator = np.random.default_rng(seed)
    labels = np.arange(num) % classes
    features = np.eye(8)[labels] + spread * generator.normal(size=(num, 8))
    return features / np.linalg.norm(features, axis=1, keepdims=True), labels


def test_the_same_seed_gives_the_same_places_and_neighbours_stay():
    features, labels = blobs()

    places = embed(features, perplexity=10)

    np.testing.assert_array_equal(places, embed(features, perplexity=10))
    distance = np.linalg.norm(places[:, None] - places, axis=2)
    np.fill_diagonal(distance, np.inf)
    assert (labels[distance.argmin(axis=1)] == labels).all()


@pytest.mark.parametrize('num', [4, 10])
def test_few_features_make_the_perplexity_smaller(num):
    assert embed(blobs(num)[0]).shape == (num, 2)


def test_separation_grows_with_the_distance_of_the_classes():
    near, far = (separation(*blobs(spread=spread)) for spread in (1.0, 0.1))

    assert -1 <= near < 0.5 < far <= 1
    assert np.isnan(separation(blobs()[0], np.zeros(60, int)))


def test_draws_every_image_and_prototype(legible):
    features, labels = blobs()
    plain = Cloud(features, labels)
    with_prototypes = Cloud(features, labels, np.eye(8)[[0, 1, 1]], np.array([0, 1, 1]))
    said = []

    figure = draw_tsne([[plain, with_prototypes]], ['Attributes'], ['baseline', 'ClusPro'],
                       [['dry', 'wet', 'old']], perplexity=10, say=said.append)

    first, second = figure.axes
    assert [len(part.get_offsets()) for part in first.collections] == [20, 20, 20]
    assert [len(part.get_offsets()) for part in second.collections] == [20, 20, 20, 1, 2]
    colors = [tuple(part.get_facecolor()[0][:3]) for part in second.collections]
    assert len(set(colors[:3])) == 3 and colors[3:] == colors[:2]
    assert first.get_ylabel() == 'Attributes'
    score = separation(features, labels)
    assert second.get_title() == f'ClusPro (silhouette {score:.2f})'
    assert [text.get_text() for text in second.get_legend().get_texts()] == [
        'dry', 'wet', 'old', 'prototype']
    assert len(said) == 2
    legible(figure)


def test_wrong_features_are_an_error():
    with pytest.raises(ValueError, match='at least 4 features, got 3'):
        embed(np.eye(3))
    with pytest.raises(ValueError, match='NaN'):
        embed(np.full((9, 2), np.nan))


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, 'sklearn', None)

    with pytest.raises(ImportError, match=r"pip install .*\[viz\]'"):
        embed(np.eye(5))
