import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from mmcluspro.visualization.prototypes import NearestImages


def make_case(sizes, num, seed, dim=4):
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    prototypes = torch.randn(int(offsets[-1]), dim, generator=generator)
    labels = torch.randint(len(sizes), (num, ), generator=generator)
    return prototypes, offsets, torch.randn(num, dim, generator=generator), labels


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(sum),
       num=st.integers(1, 25), count=st.integers(1, 6), batch=st.integers(1, 25),
       seed=st.integers(0, 99))
def test_equals_a_search_over_all_images(sizes, num, count, batch, seed):
    prototypes, offsets, features, labels = make_case(sizes, num, seed)
    nearest = NearestImages(prototypes, offsets, count)
    index = torch.arange(num) + 100
    for start in range(0, num, batch):
        part = slice(start, start + batch)
        nearest.update(features[part], labels[part], index[part])

    cosine = normalize(features, dim=1) @ normalize(prototypes, dim=1).T
    shares = nearest.shares()
    for primitive in range(len(sizes)):
        mine = [i for i in range(num) if labels[i] == primitive]
        rows = list(range(int(offsets[primitive]), int(offsets[primitive + 1])))
        for row in rows:
            best = sorted(mine, key=lambda i, row=row: -cosine[i, row])[:count]
            assert nearest.images(row) == [i + 100 for i in best]
            won = [i for i in mine if cosine[i, row] == cosine[i, rows].max()]
            assert nearest.assigned[row] == len(won)
            assert shares[row] == pytest.approx(len(won) / max(len(mine), 1))


def test_no_images_is_an_error():
    with pytest.raises(ValueError, match='at least 1, got 0'):
        NearestImages(torch.eye(2), torch.tensor([0, 2]), 0)
