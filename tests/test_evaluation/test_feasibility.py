from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation import (
    PairGroups,
    calculate,
    feasibility_scores,
    head_feasibility,
    reduce_scores,
    standard_metrics,
    threshold_candidates,
)
from mmcluspro.evaluation.tensors import read_on_device


def by_definition(attr_emb, obj_emb, train_pairs):
    cosine = torch.nn.functional.cosine_similarity
    train = {tuple(pair) for pair in train_pairs.tolist()}
    rho = torch.empty(len(attr_emb), len(obj_emb))
    for a in range(len(attr_emb)):
        for o in range(len(obj_emb)):
            objects = [float(cosine(obj_emb[o], obj_emb[other], dim=0))
                       for other in range(len(obj_emb)) if other != o and (a, other) in train]
            attrs = [float(cosine(attr_emb[a], attr_emb[other], dim=0))
                     for other in range(len(attr_emb)) if other != a and (other, o) in train]
            rho[a, o] = (max(objects, default=-1) + max(attrs, default=-1)) / 2
    return rho


@pytest.mark.parametrize('num_attrs, num_objs, num_train', [(1, 1, 1), (1, 3, 2), (6, 4, 0),
                                                            (6, 4, 24), (9, 7, 20)])
def test_equals_the_definition(num_attrs, num_objs, num_train):
    generator = torch.Generator().manual_seed(num_train)
    attr_emb = torch.randn(num_attrs, 5, generator=generator)
    obj_emb = torch.randn(num_objs, 3, generator=generator)
    flat = torch.randperm(num_attrs * num_objs, generator=generator)[:num_train]
    train_pairs = torch.stack([flat // num_objs, flat % num_objs], 1)

    got = feasibility_scores(attr_emb, obj_emb, train_pairs)

    torch.testing.assert_close(got, by_definition(attr_emb, obj_emb, train_pairs))


def test_bad_embeddings_are_refused():
    with pytest.raises(ValueError, match='finite'):
        feasibility_scores(torch.ones(2, 2), torch.full((2, 2), torch.nan), torch.tensor([[0, 0]]))


def test_candidates_span_the_unseen_pairs():
    rho = torch.tensor([-0.9, 0.1, 0.5, 0.3, 0.99])
    seen = torch.tensor([True, False, False, False, True])

    got = threshold_candidates(rho, seen, 5)

    assert got.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert threshold_candidates(rho, torch.ones(5, dtype=torch.bool)).tolist() == [-1]


def open_world_case(num=80, num_pairs=60, integers=True):
    generator = torch.Generator().manual_seed(3)
    scores = (2 * torch.randn(num, num_pairs, generator=generator, dtype=torch.float64))
    scores = scores.round() if integers else scores
    targets = torch.randint(num_pairs, (num, ), generator=generator)
    scores[torch.arange(num), targets] += 2
    seen = torch.rand(num_pairs, generator=generator) < 0.3
    rho = torch.randint(-4, 5, (num_pairs, ), generator=generator) / 4  # many equal ones
    pairs = torch.randint(6, (num_pairs, 2), generator=generator)
    return scores, targets, seen, rho, pairs


@pytest.mark.parametrize('integers', [False, True], ids=['random', 'tied'])
@pytest.mark.parametrize('topk', [(1, ), (1, 3)])
@pytest.mark.parametrize('accelerator', [False, True])
def test_one_pass_equals_50_evaluations(topk, integers, accelerator):
    scores, targets, seen, rho, pairs = open_world_case(integers=integers)
    thresholds = threshold_candidates(rho, seen)
    assert len(thresholds) == 50

    groups = PairGroups.from_thresholds(rho, seen, thresholds)
    # What other devices compute is the same on the CPU.
    read = read_on_device if accelerator else None
    got = reduce_scores(scores, targets, seen, pairs, topk, groups, read=read)

    areas = set()
    for j, threshold in enumerate(thresholds):
        feasible = seen | (rho.double() > threshold)
        filtered = scores.masked_fill(~feasible, -1e9)  # loses against everything, at any bias
        want = calculate(filtered, targets, seen, pairs, topk)
        for column, suffix in enumerate(['', '_top3'][:len(topk)]):
            part = standard_metrics(got.margin[:, j, column], got.diff[:, column], got.is_seen)
            for name, value in part.items():
                assert value == pytest.approx(want[name + suffix], abs=1e-9), (j, name)
            attr_acc = 100 * got.attr_right[:, j, column].mean()
            obj_acc = 100 * got.obj_right[:, j, column].mean()
            assert attr_acc == pytest.approx(want['attr_acc' + suffix])
            assert obj_acc == pytest.approx(want['obj_acc' + suffix])
        areas.add(want['auc'])
    assert len(areas) > 5  # the thresholds do matter here


@pytest.mark.parametrize('threshold', [-2.0, 0.0, 0.25, 2.0])
def test_a_single_threshold_filters_unseen_pairs_only(threshold):
    scores, targets, seen, rho, pairs = open_world_case()
    groups = PairGroups.from_thresholds(rho, seen, torch.tensor([threshold], dtype=torch.float64))

    got = reduce_scores(scores, targets, seen, pairs, groups=groups)

    feasible = seen | (rho > threshold)
    want = reduce_scores(scores.masked_fill(~feasible, -1e9), targets, seen, pairs)
    possible = feasible[targets].numpy()
    assert (got.margin[~possible] == np.inf).all()  # an infeasible true pair is wrong at any bias
    if (feasible & ~seen).any():
        np.testing.assert_array_equal(got.margin[possible], want.margin[possible])
    else:  # nothing can overtake a seen pair
        assert set(got.margin[got.is_seen].ravel()) == {-np.inf, np.inf}
    np.testing.assert_array_equal(got.attr_right, want.attr_right)


class TwoTexts:
    """A text side whose features moved away from what it started from."""

    training = False

    def __init__(self, space, learned):
        self.names = [*space.attributes, *space.objects]
        self.size, self.learned = len(space.attributes), learned
        self.start = torch.randn(len(self.names), 4, generator=torch.Generator().manual_seed(0))

    def pretrained(self, names):
        return self.start[[self.names.index(name) for name in names]]

    def encode_attributes(self):
        return self.learned[:self.size]

    def encode_objects(self):
        return self.learned[self.size:]


def test_the_head_says_whose_embeddings_count():
    pairs = [[0, 0], [0, 2], [1, 1], [2, 3]]
    space = CompositionSpace(list('abc'), list('wxyz'), pairs, [True] * 4)
    learned = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
    text = TwoTexts(space, learned)

    for source, table in (('pretrained', text.start), ('trained', learned)):
        got = head_feasibility(SimpleNamespace(text=text, feasibility=source), space)
        torch.testing.assert_close(
            got, feasibility_scores(table[:3], table[3:], space.train_pairs))
