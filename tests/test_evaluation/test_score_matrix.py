"""The metric against brute force: every bias applied to the full score matrix."""
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcluspro.evaluation import CZSLMetric, calculate, standard_curve
from mmcluspro.evaluation import margins as reduction

FAR = 1e6  # beyond any score here: stands for an infinite bias


def top_pairs(scores, seen, bias, k):
    """First k pairs of the biased rows; equal scores keep the order of their indices."""
    return np.argsort(-(scores + bias * ~seen), axis=1, kind='stable')[:, :k]


def accuracies(scores, targets, seen, bias, k):
    right = (top_pairs(scores, seen, bias, k) == targets[:, None]).any(1)
    return [float(right[side].mean()) if side.any() else 0.0
            for side in (seen[targets], ~seen[targets])]


def sweep(scores, targets, seen, biases, k):
    """Numbers of the accuracies at each bias, in percent; all biases that are best by hm."""
    points = np.array([accuracies(scores, targets, seen, bias, k) for bias in biases])
    hm = np.array([2 * s * u / (s + u) if s * u else 0.0 for s, u in points])
    area = sum((u1 - u0) * (s1 + s0) / 2 for (s0, u0), (s1, u1) in zip(points, points[1:]))
    return dict(auc=100 * area, hm=100 * hm.max(), best_bias=np.array(biases)[hm > hm.max() - 1e-9],
                seen=100 * points[:, 0].max(), unseen=100 * points[:, 1].max())


def standard_biases(scores, targets, seen, k):
    """The biases of the field's evaluators (czsl, CSP, Troika)."""
    rows = np.arange(len(targets))
    right = (top_pairs(scores, seen, 1e3, k) == targets[:, None]).any(1) & ~seen[targets]
    if not seen.any():
        return [-1e-4, 1e3] if right.any() else [1e3]  # no bias matters
    kth_seen = -np.sort(-scores[:, seen], axis=1)[:, min(k, seen.sum()) - 1]
    diff = np.sort((kth_seen - scores[rows, targets])[right] - 1e-4)
    return [*diff[::max(len(diff) // 20, 1)], 1e3]


def every_bias(scores, seen):
    """Where any pair can overtake another one (if exact there), and between those places."""
    turns = np.unique(scores[:, seen][:, :, None] - scores[:, ~seen][:, None, :])
    between = (turns[1:] + turns[:-1]) / 2
    places = turns if (scores == scores.round(2)).all() else []
    return sorted([-FAR, *between, *places, FAR])


def brute_force(scores, targets, seen, pairs=None, k=1):
    scores, targets = np.asarray(scores, np.float64), np.asarray(targets)
    seen = np.asarray(seen)
    numbers = sweep(scores, targets, seen, standard_biases(scores, targets, seen, k), k)
    exact = sweep(scores, targets, seen, every_bias(scores, seen), k)
    numbers.update(auc_exact=exact['auc'], hm_exact=exact['hm'])
    if pairs is not None:
        pairs = np.asarray(pairs)
        right = pairs[top_pairs(scores, seen, 0, k)] == pairs[targets][:, None]
        numbers['attr_acc'], numbers['obj_acc'] = 100 * right.any(1).mean(0)
    return numbers


def make_case(num, num_pairs, seed=0, dtype=torch.float64, integers=False, share_seen=0.5):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(num, num_pairs, generator=generator, dtype=torch.float64) * 2
    scores = scores.round() if integers else scores
    targets = torch.randint(num_pairs, (num, ), generator=generator)
    scores[torch.arange(num), targets] += 2  # right often enough to have a curve
    seen = torch.rand(num_pairs, generator=generator) < share_seen
    pairs = torch.randint(4, (num_pairs, 2), generator=generator)
    return scores.to(dtype), targets, seen, pairs


def assert_equal(got, want, suffix=''):
    for name, value in want.items():
        if name == 'best_bias':
            assert np.abs(value - got[name + suffix]).min() < 1e-9
        else:
            assert got[name + suffix] == pytest.approx(value, abs=1e-9), name


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('integers', [False, True], ids=['random', 'tied'])
@pytest.mark.parametrize('num, num_pairs', [(1, 1), (1, 6), (2, 2), (30, 7), (90, 15)])
def test_equals_brute_force(num, num_pairs, integers, dtype):
    case = make_case(num, num_pairs, dtype=dtype, integers=integers)

    got = CZSLMetric.calculate(*case)

    assert_equal(got, brute_force(*case))
    assert all(type(value) is float for value in got.values())


@pytest.mark.parametrize('integers', [False, True], ids=['random', 'tied'])
def test_topk_equals_brute_force(integers):
    case = make_case(60, 9, integers=integers)

    got = calculate(*case, topk=(1, 2, 3, 12))

    for k, suffix in ((1, ''), (2, '_top2'), (3, '_top3'), (12, '_top12')):
        assert_equal(got, brute_force(*case, k=k), suffix)
    assert calculate(*case, topk=3)['auc'] == got['auc_top3']


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('k', [1, 3])
def test_log_scores_equal_brute_force(dtype, k):
    scores, targets, seen, pairs = make_case(80, 12)
    scores = scores.softmax(1).to(dtype)

    got = calculate(scores, targets, seen, pairs, topk=k, bias_on='log')

    assert_equal(got, brute_force(scores.double().log(), targets, seen, pairs, k))
    literal = brute_force(scores, targets, seen, pairs, k)
    assert got['auc_score'] == pytest.approx(literal['auc'], abs=1e-9)
    assert got['hm_score'] == pytest.approx(literal['hm'], abs=1e-9)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_equals_brute_force_on_any_small_case(data):
    num, num_pairs = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    row = st.lists(st.integers(-3, 3), min_size=num_pairs, max_size=num_pairs)
    scores = data.draw(st.lists(row, min_size=num, max_size=num))
    targets = data.draw(st.lists(st.integers(0, num_pairs - 1), min_size=num, max_size=num))
    seen = data.draw(st.lists(st.booleans(), min_size=num_pairs, max_size=num_pairs))
    pairs = data.draw(st.lists(st.tuples(*[st.integers(0, 2)] * 2), min_size=num_pairs,
                               max_size=num_pairs))
    k = data.draw(st.integers(1, 4))

    assert_equal(calculate(scores, targets, seen, pairs, topk=k),
                 brute_force(scores, targets, seen, pairs, k))


@settings(max_examples=60, deadline=None)
@given(num=st.integers(1, 12), num_pairs=st.integers(1, 8), seed=st.integers(0, 999),
       k=st.integers(1, 3))
def test_neither_order_nor_a_constant_of_an_image_matters(num, num_pairs, seed, k):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-9, 9, (num, num_pairs), generator=generator).double()
    scores += torch.linspace(0, 0.5, num_pairs)  # no ties
    targets = torch.randint(num_pairs, (num, ), generator=generator)
    seen = torch.rand(num_pairs, generator=generator) < 0.5
    pairs = torch.randint(3, (num_pairs, 2), generator=generator)
    want = calculate(scores, targets, seen, pairs, topk=k)
    images, columns = (torch.randperm(n, generator=generator) for n in (num, num_pairs))

    moved = calculate(scores[images][:, columns], columns.argsort()[targets[images]],
                      seen[columns], pairs[columns], topk=k)
    shifted = calculate(scores + 4.0 * torch.arange(num)[:, None], targets, seen, pairs, topk=k)

    assert moved == pytest.approx(want, abs=1e-9) and shifted == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize('all_seen', [True, False])
@pytest.mark.parametrize('all_pairs', [True, False])
def test_a_side_without_samples_counts_as_zero(all_seen, all_pairs):
    scores, targets, seen, pairs = make_case(40, 8)
    seen = torch.full_like(seen, all_seen)
    if not all_pairs:  # pairs of the other side exist, samples of it do not
        seen[0] = not all_seen
        targets = targets.clamp(1)

    got = calculate(scores, targets, seen, pairs)

    assert_equal(got, brute_force(scores, targets, seen, pairs))
    assert got['unseen' if all_seen else 'seen'] == got['hm'] == got['auc'] == 0
    assert got['hm_exact'] == got['auc_exact'] == 0


def test_equals_the_published_evaluators_in_single_precision():
    scores, targets, seen, _ = make_case(400, 40, dtype=torch.float32)
    biases = standard_biases(scores.numpy(), targets.numpy(), seen.numpy(), 1)
    is_seen = seen[targets]
    curve = []
    for bias in np.float32(biases):
        right = (scores + torch.tensor(bias) * ~seen).argmax(1) == targets
        curve.append([right[is_seen].float().mean(), right[~is_seen].float().mean()])
    curve_seen, curve_unseen = torch.tensor(curve).double().T

    got = calculate(scores, targets, seen)

    assert got['auc'] == pytest.approx(
        100 * float(torch.trapezoid(curve_seen, curve_unseen)), abs=1e-4)
    assert got['seen'] == pytest.approx(100 * float(curve_seen.max()), abs=1e-4)
    assert got['unseen'] == pytest.approx(100 * float(curve_unseen.max()), abs=1e-4)


@pytest.mark.parametrize('right, step', [(0, 1), (1, 1), (19, 1), (20, 1), (39, 1), (40, 2),
                                         (399, 19), (400, 20)])
def test_the_standard_protocol_takes_every_nth_bias(right, step):
    wrong = 5
    margin = np.append(np.linspace(0, 1, right), np.full(wrong, np.inf))

    curve = standard_curve(margin, margin, np.zeros(right + wrong, bool))

    assert curve.bias.tolist() == pytest.approx(
        [*(margin[i] - 1e-4 for i in range(0, right, step)), 1000])


def test_a_bias_of_1000_is_not_infinite():
    scores, targets, seen = [[3000.0, 0.0], [1.0, 0.0]], [1, 0], [True, False]

    got = calculate(scores, targets, seen)

    assert got['unseen'] == 0
    assert got['auc_exact'] == 0
    assert_equal(got, brute_force(scores, targets, seen))


def test_blocks_do_not_matter(monkeypatch):
    case = make_case(50, 9, integers=True)
    want = calculate(*case, topk=(1, 3))

    monkeypatch.setattr(reduction, 'BLOCK', 20)

    assert calculate(*case, topk=(1, 3)) == want


@pytest.mark.parametrize('convert', [np.asarray, lambda tensor: tensor.tolist(),
                                     lambda tensor: tensor.clone().requires_grad_(
                                         tensor.is_floating_point())])
def test_takes_arrays_lists_and_tensors_that_need_gradients(convert):
    case = make_case(20, 6)

    assert calculate(*map(convert, case)) == calculate(*case)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.int64])
def test_other_number_types(dtype):
    scores, *rest = make_case(20, 6, integers=True)

    assert calculate(scores.to(dtype), *rest) == calculate(scores, *rest)


def test_without_pairs_there_is_no_primitive_accuracy():
    got = calculate(*make_case(5, 4)[:3])

    assert set(got) == {'seen', 'unseen', 'hm', 'auc', 'auc_score', 'hm_score', 'auc_exact',
                        'hm_exact', 'best_bias'}


@pytest.mark.parametrize('value', [float('nan'), float('inf'), float('-inf')])
def test_scores_that_are_not_finite_name_the_sample(value):
    scores, *rest = make_case(9, 5)
    scores[4, 1:3] = value
    scores[7, 0] = value

    with pytest.raises(ValueError, match=r'2 of the 5 pair scores of sample 4 .* 1 of the 8'):
        calculate(scores, *rest)


def test_huge_scores_are_fine():
    scores, *rest = make_case(9, 5, dtype=torch.float32)

    assert calculate(scores * 4e37, *rest)['auc_exact'] == calculate(scores, *rest)['auc_exact']


@pytest.mark.parametrize('change, message', [
    (dict(targets=torch.tensor([0, 1, -1])), r'targets .*\[0, 4\), got -1 for sample 2'),
    (dict(targets=torch.tensor([0, 4, 4])), r'got 4 for sample 1 \(2 such'),
    (dict(targets=torch.tensor([0, 1])), r'targets must have shape \(3,\)'),
    (dict(seen=torch.ones(3, dtype=torch.bool)), r'seen must have shape \(4,\)'),
    (dict(pairs=torch.zeros(4, 3)), r'pairs must have shape \(4, 2\)'),
    (dict(scores=torch.zeros(4)), r'scores must have shape \(N, P\), got \(4,\)'),
    (dict(scores=torch.zeros(0, 4)), r'scores must have shape \(N, P\), got \(0, 4\)'),
    (dict(topk=0), 'topk must be .* got 0'),
    (dict(topk=(1, 1)), 'topk must be'),
    (dict(topk=()), 'topk must be'),
    (dict(bias_on='p'), "bias_on must be 'log' or 'score', got 'p'"),
    (dict(bias_on='log'), r'sample 0 go down to -.* no logarithm'),
])
def test_wrong_arguments_are_named(change, message):
    scores, targets, seen, pairs = make_case(3, 4)

    with pytest.raises(ValueError, match=message):
        calculate(**(dict(scores=scores, targets=targets, seen=seen, pairs=pairs) | change))


@pytest.mark.parametrize('bias_on', ['score', 'log'])
def test_a_side_with_fewer_pairs_than_k_has_no_rival(bias_on):
    """The true pair is the best of three unseen ones, and there is one seen pair: of the first
    three places, one is its own at any bias; of the first place it is robbed by the seen pair."""
    margins = reduction.reduce_scores(
        torch.tensor([[0.6, 0.2, 0.1, 0.05]]), torch.tensor([1]),
        torch.tensor([True, False, False, False]), topk=(1, 3), bias_on=bias_on)
    first, third = margins.margin[0, 0]
    turn = np.log(0.6 / 0.2) if bias_on == 'log' else 0.4
    assert first == pytest.approx(turn, rel=1e-6) and third == -np.inf
