import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from torch.nn.functional import normalize

from mmcluspro.models.prototypes import (
    ClassicalOT,
    CosineAssigner,
    LocalAwareOT,
    local_aware_assign,
    nearest_prototype,
)
from mmcluspro.registry import MODELS

SIZES = [5, 5, 5], [1, 4, 2], [3], [2, 1, 6, 5]


def make_case(num_features, sizes, dim=16, spread=1.0, seed=0, dtype=torch.float32):
    """Features and prototypes around one centre per class, ``spread`` apart."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *size: normalize(torch.randn(*size, dim, generator=generator), dim=-1)
    sizes = torch.tensor(sizes)
    centres = draw(len(sizes))
    labels = torch.randint(len(sizes), (num_features, ), generator=generator)
    features = normalize(centres[labels] + spread * draw(num_features), dim=1)
    prototypes = normalize(
        centres.repeat_interleave(sizes, dim=0) + spread * draw(int(sizes.sum())), dim=1)
    return features.to(dtype), labels, prototypes.to(dtype), sizes


def plain_sinkhorn(cost, epsilon):
    kernel = np.exp(-cost / epsilon)
    num, columns = cost.shape
    v = np.ones(columns)
    for _ in range(20000):
        u = 1 / num / (kernel @ v)
        previous, v = v, 1 / columns / (kernel.T @ u)
        if np.allclose(v, previous, rtol=1e-12, atol=0):
            break
    return u[:, None] * kernel * v


def plain_plan(features, prototypes, kappa, epsilon, temperature):
    """Conditional gradient for one class, step by step; full steps, as cosines are concave."""
    log_q = log_softmax(features @ prototypes.T / temperature, axis=1)
    q, similarity = np.exp(log_q), features @ features.T
    plan = np.full(log_q.shape, 1 / log_q.size)
    for _ in range(100):
        linear = -log_q - 2 * kappa * (similarity @ (q * plan)) * q
        previous, plan = plan, plain_sinkhorn(linear, epsilon)
        if np.abs(plan - previous).max() < 1e-12:
            break
    return plan


@pytest.mark.parametrize('sizes', SIZES)
@pytest.mark.parametrize('kappa, temperature', [(1.0, 1.0), (5.0, 0.5)])
def test_plan_equals_a_loop_over_classes(sizes, kappa, temperature):
    features, labels, prototypes, num = make_case(60, sizes, dtype=torch.float64)

    got = local_aware_assign(features, labels, prototypes, num, kappa=kappa, epsilon=0.1,
                             temperature=temperature, tol=1e-12, max_iter=100)

    assert got.report.converged.all()
    offsets = [0, *num.cumsum(0).tolist()]
    for c in range(len(sizes)):
        own = labels == c
        want = len(features[own]) * plain_plan(
            features[own].numpy(), prototypes[offsets[c]:offsets[c + 1]].numpy(), kappa, 0.1,
            temperature)
        np.testing.assert_allclose(got.plan[own, :sizes[c]], want, atol=1e-5)
        assert (got.plan[own, sizes[c]:] == 0).all()
        assert (got.rows[own].numpy() == offsets[c] + want.argmax(axis=1)).all()


@pytest.mark.parametrize('num_features', [64, 256])
def test_equals_equation_8_in_float32_with_the_defaults(num_features):
    features, labels, prototypes, num = make_case(num_features, [5, 5, 5])

    got = local_aware_assign(features, labels, prototypes, 5)

    assert got.solved.all() and got.report.converged.all()
    torch.testing.assert_close(got.plan.sum(dim=1), torch.ones(num_features))
    for c in range(3):
        column_mass = got.plan[labels == c].mean(dim=0)
        torch.testing.assert_close(column_mass, torch.full((5, ), 0.2), atol=1e-4, rtol=0)
        want = plain_plan(features[labels == c].double().numpy(),
                          prototypes[5 * c:5 * c + 5].double().numpy(), 1.0, 0.05, 1.0)
        count = int((labels == c).sum())
        np.testing.assert_allclose(got.plan[labels == c] / count, want, atol=1e-5)


def test_without_structure_it_is_classical_transport():
    features, labels, prototypes, num = make_case(50, [5, 3], dtype=torch.float64)

    got = local_aware_assign(features, labels, prototypes, num, kappa=0.0)

    log_q = log_softmax((features @ prototypes.T)[labels == 1][:, 5:].numpy(), axis=1)
    want = plain_sinkhorn(-log_q, 0.05) * int((labels == 1).sum())
    np.testing.assert_allclose(got.plan[labels == 1, :3], want, atol=1e-7)
    offsets = torch.tensor([0, 5, 8])
    assert torch.equal(ClassicalOT()(features, labels, prototypes, offsets), got.rows)


@pytest.mark.parametrize('count, num_prototypes, solved', [(1, 5, False), (4, 5, False),
                                                           (5, 5, True), (9, 5, True),
                                                           (1, 1, False), (7, 1, False)])
def test_regimes_without_context(count, num_prototypes, solved):
    """Fewer features than prototypes, or one prototype: the nearest one."""
    features, labels, prototypes, _ = make_case(count, [num_prototypes])

    got = local_aware_assign(features, labels, prototypes, num_prototypes)

    assert got.solved.tolist() == [solved] * count
    assert got.report.classes.tolist() == ([0] if solved else [])
    if not solved:
        assert torch.equal(got.rows, (features @ prototypes.T).argmax(dim=1))
        assert torch.equal(got.plan.argmax(dim=1), got.rows)
    torch.testing.assert_close(got.plan.sum(dim=1), torch.ones(count))


def as_context(features, labels, num_classes):
    """Features by class, shape (C, Q, D), and how many there are of each."""
    counts = torch.bincount(labels, minlength=num_classes)
    context = features.new_zeros(num_classes, int(counts.max()), features.shape[1])
    for c in range(num_classes):
        context[c, :counts[c]] = features[labels == c]
    return context, counts


@pytest.mark.parametrize('solver', ['fixed', 'exact'])
@pytest.mark.parametrize('num', [1, 3, 20])
def test_transport_goes_over_the_context(num, solver):
    features, labels, prototypes, sizes = make_case(40, [5, 5], dtype=torch.float64)
    together = local_aware_assign(features, labels, prototypes, sizes, solver=solver)

    got = local_aware_assign(features[:num], labels[:num], prototypes, sizes,
                             *as_context(features, labels, 2), solver=solver)

    assert got.solved.all() and got.rows.shape == (num, )
    torch.testing.assert_close(got.plan, together.plan[:num], atol=1e-5, rtol=0)


def test_context_of_classes_outside_the_batch_is_not_solved():
    features, labels, prototypes, num = make_case(60, [5, 5, 5])
    own = labels == 1

    got = local_aware_assign(features[own], labels[own], prototypes, num,
                             *as_context(features, labels, 3))

    assert got.report.classes.tolist() == [1]


def test_batch_scope_is_the_pseudo_code():
    """Transport over all features for each class, of which the class keeps its rows."""
    features, labels, prototypes, num = make_case(30, [5, 3], dtype=torch.float64)

    got = local_aware_assign(features, labels, prototypes, num, scope='batch', tol=1e-12)

    for c, (first, last) in enumerate([(0, 5), (5, 8)]):
        everything = 30 * plain_plan(features.numpy(), prototypes[first:last].numpy(), 1.0, 0.05,
                                     1.0)
        own = (labels == c).numpy()
        np.testing.assert_allclose(got.plan[own, :last - first], everything[own], atol=1e-5)


@pytest.mark.parametrize('scope', ['class', 'batch'])
def test_permuting_samples_permutes_the_result(scope):
    features, labels, prototypes, num = make_case(50, [5, 2, 4])
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    before = local_aware_assign(features, labels, prototypes, num, scope=scope)

    after = local_aware_assign(features[order], labels[order], prototypes, num, scope=scope)

    torch.testing.assert_close(after.plan, before.plan[order], atol=1e-4, rtol=0)
    assert torch.equal(after.rows, before.rows[order])


def test_classes_do_not_mix():
    features, labels, prototypes, num = make_case(60, [5, 5, 5])
    before = local_aware_assign(features, labels, prototypes, num)
    changed = torch.where((labels == 2)[:, None], features.flip(1), features)

    after = local_aware_assign(changed, labels, prototypes, num)

    others = labels != 2
    torch.testing.assert_close(after.plan[others], before.plan[others], atol=1e-5, rtol=0)


def test_features_with_mean_cosine_099():
    features, labels, prototypes, num = make_case(80, [5, 5], spread=0.1)
    own = features[labels == 0]
    assert (own @ own.T).mean() > 0.985

    got = local_aware_assign(features, labels, prototypes, num, epsilon=0.001)

    assert got.report.converged.all()
    counts = torch.bincount(got.rows[labels == 0], minlength=5)[:5]
    assert (counts > 0).all() and counts.max() <= 2 * len(own) / 5


def test_similar_features_stay_together_when_kappa_is_large():
    """Two tight groups at the border between two prototypes: structure keeps them whole."""
    angles = torch.tensor([0.78, 0.80, 0.79, 0.785, 0.60, 0.61, 0.59, 0.62])
    features = torch.stack([angles.cos(), angles.sin(), torch.zeros(8)], dim=1)
    features[:4, 2], features[4:, 2] = 2.0, -2.0
    prototypes = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    labels = torch.zeros(8, dtype=torch.long)

    got = local_aware_assign(features, labels, prototypes, 2, kappa=20.0)

    assert got.rows.tolist() == [1] * 4 + [0] * 4


@pytest.mark.parametrize('break_it', ['huge', 'tiny', 'zeros', 'equal', 'zero prototypes'])
@pytest.mark.parametrize('epsilon, temperature', [(0.05, 1.0), (1e-3, 1e-2)])
def test_never_nan(break_it, epsilon, temperature):
    features, labels, prototypes, num = make_case(40, [5, 3, 1])
    if break_it == 'huge':
        features = features * 3e38
    elif break_it == 'tiny':
        features = features * 1e-38
    elif break_it == 'zeros':
        features = torch.zeros_like(features)
    elif break_it == 'equal':
        features = features[:1].expand_as(features)
    else:
        prototypes = torch.zeros_like(prototypes)

    got = local_aware_assign(features, labels, prototypes, num, epsilon=epsilon,
                             temperature=temperature)

    assert got.plan.isfinite().all()
    torch.testing.assert_close(got.plan.sum(dim=1), torch.ones(40), atol=1e-4, rtol=0)
    assert got.report.objective.isfinite().all()
    if break_it == 'huge':
        whole = local_aware_assign(features / 3e38, labels, prototypes, num, epsilon=epsilon,
                                   temperature=temperature)
        assert torch.equal(got.rows, whole.rows) and len(got.rows.unique()) > 5
    offsets = torch.tensor([0, 5, 8, 9])
    assert ((got.rows >= offsets[labels]) & (got.rows < offsets[labels + 1])).all()


@settings(max_examples=40, deadline=None)
@given(num=st.integers(0, 40), sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6),
       kappa=st.sampled_from([0.0, 1.0, 50.0]), scope=st.sampled_from(['class', 'batch']),
       seed=st.integers(0, 999))
def test_any_sizes(num, sizes, kappa, scope, seed):
    features, labels, prototypes, num_prototypes = make_case(num, sizes, seed=seed)

    got = local_aware_assign(features, labels, prototypes, num_prototypes, kappa=kappa,
                             scope=scope)

    assert got.plan.shape[0] == got.rows.shape[0] == num
    torch.testing.assert_close(got.plan.sum(dim=1), torch.ones(num))
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    assert ((got.rows >= offsets[labels]) & (got.rows < offsets[labels + 1])).all()
    assert (got.report.trace.diff(dim=0) <= 0).all()
    if scope == 'class':
        for c, converged in zip(got.report.classes.tolist(), got.report.converged.tolist()):
            mass = got.plan[labels == c].mean(dim=0)[:sizes[c]]
            torch.testing.assert_close(mass, torch.full_like(mass, 1 / sizes[c]),
                                       atol=1.1e-4 if converged else 5e-3, rtol=0)


def test_runs_in_float32_under_autocast():
    features, labels, prototypes, num = make_case(40, [5, 5])
    want = local_aware_assign(features, labels, prototypes, num)

    with torch.autocast('cpu', dtype=torch.bfloat16):
        got = local_aware_assign(features, labels, prototypes, num)

    assert torch.equal(got.plan, want.plan)


def test_same_input_same_bits():
    case = make_case(100, [5] * 20)
    assert torch.equal(local_aware_assign(*case).plan, local_aware_assign(*case).plan)


@pytest.mark.parametrize('num_features', [1, 7, 64])
@pytest.mark.parametrize('sizes', SIZES)
def test_nearest_equals_a_search_inside_each_primitive(num_features, sizes):
    features, labels, prototypes, num = make_case(num_features, sizes, spread=3.0)
    offsets = torch.tensor([0, *sizes]).cumsum(0)

    got = nearest_prototype(features, labels, prototypes, offsets)

    assert torch.equal(got, CosineAssigner()(features, labels, prototypes, offsets))
    for feature, label, row in zip(features, labels, got):
        own = prototypes[offsets[label]:offsets[label + 1]]
        assert row == offsets[label] + (own @ feature).argmax()


def test_opposite_prototype_still_wins_inside_its_primitive():
    feature = torch.tensor([[1.0, 0.0]])
    prototypes = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])

    got = CosineAssigner()(feature, torch.tensor([0]), prototypes, torch.tensor([0, 1, 2]))

    assert got.tolist() == [0]


def test_cosine_threshold_leaves_features_out():
    features = normalize(torch.tensor([[1.0, 0.0], [1.0, 2.0]]), dim=1)
    prototypes = torch.tensor([[1.0, 0.0]])

    got = CosineAssigner(min_similarity=0.9)(features, torch.tensor([0, 0]), prototypes,
                                             torch.tensor([0, 1]))

    assert got.tolist() == [0, -1]


@pytest.mark.parametrize('name', ['LocalAwareOT', 'ClassicalOT', 'CosineAssigner'])
def test_built_from_config(name):
    features, labels, prototypes, num = make_case(30, [5, 5])
    assigner = MODELS.build(dict(type=f'mmcluspro.{name}'))

    rows = assigner(features, labels, prototypes, torch.tensor([0, 5, 10]),
                    *as_context(features, labels, 2))

    assert ((rows // 5) == labels).all()


def test_unconverged_classes_are_reported():
    features, labels, prototypes, _ = make_case(60, [5, 5])
    assigner = LocalAwareOT(kappa=100.0, temperature=0.2, max_iter=1)

    assigner(features, labels, prototypes, torch.tensor([0, 5, 10]))

    with pytest.warns(UserWarning, match=r'did not converge for 2 of 2 .* assigner\.max_iter'):
        assigner.warn_if_unconverged()

    assert not assigner.report.converged.any()


@pytest.mark.parametrize('kwargs, message', [
    (dict(kappa=-1.0), r'assigner\.kappa .* got -1\.0'),
    (dict(epsilon=0.0), r'assigner\.epsilon .* got 0\.0'),
    (dict(temperature=1e-9), r'assigner\.temperature .* got 1e-09'),
    (dict(scope='image'), r"assigner\.scope .* got 'image'"),
    (dict(max_iter=0), r'assigner\.max_iter .* got 0'),
    (dict(steps=0), r'assigner\.steps .* got 0'),
    (dict(solver='fast'), r"assigner\.solver .* got 'fast'"),
])
def test_a_wrong_field_is_named_with_its_value(kwargs, message):
    with pytest.raises(ValueError, match=message):
        LocalAwareOT(**kwargs)


def test_wrong_thresholds_labels_and_sizes_are_named():
    features, labels, prototypes, num = make_case(10, [5, 5])
    with pytest.raises(ValueError, match=r'assigner\.min_similarity .* got 3\.0'):
        CosineAssigner(min_similarity=3.0)
    with pytest.raises(ValueError, match=r'assigner\.kappa .* got 2\.0'):
        ClassicalOT(kappa=2.0)
    with pytest.raises(ValueError, match=r'labels must lie in \[0, 2\), got values from 7 to 7'):
        local_aware_assign(features, torch.full_like(labels, 7), prototypes, num)
    with pytest.raises(ValueError, match='one entry for each of the 10 features'):
        local_aware_assign(features, labels[:4], prototypes, num)
    with pytest.raises(ValueError, match='must divide the 10 rows'):
        local_aware_assign(features, labels, prototypes, 3)
    with pytest.raises(ValueError, match='sum to the 10 rows'):
        local_aware_assign(features, labels, prototypes, torch.tensor([5, 4]))
