import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcluspro.models.prototypes import entropic_plan


def make_costs(batch, num, columns, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.rand(batch, num, columns, generator=generator, dtype=torch.float64)


def full(*shape):
    return torch.ones(*shape, dtype=torch.bool)


@pytest.mark.parametrize('num, columns', [(1, 1), (2, 2), (7, 3), (40, 5)])
@pytest.mark.parametrize('epsilon', [0.05, 0.5])
def test_equals_pot(num, columns, epsilon):
    ot = pytest.importorskip('ot')
    costs = make_costs(3, num, columns)

    got = entropic_plan(costs, full(3, num), full(3, columns), epsilon).plan

    a, b = np.full(num, 1 / num), np.full(columns, 1 / columns)
    for plan, cost in zip(got, costs):
        for method in ('sinkhorn', 'sinkhorn_log'):
            want = ot.sinkhorn(a, b, cost.numpy(), epsilon, method=method, numItermax=20000,
                               stopThr=1e-10, warn=False)
            np.testing.assert_allclose(plan, want, atol=1e-8)


@pytest.mark.parametrize('epsilon', [1e-3, 1e-2, 1.0])
@pytest.mark.parametrize('scale', [1.0, 100.0, 1e4])
def test_marginals_hold_where_sinkhorn_alone_would_need_thousands_of_steps(epsilon, scale):
    costs = make_costs(20, 23, 5, scale)

    got = entropic_plan(costs, full(20, 23), full(20, 5), epsilon)

    torch.testing.assert_close(got.plan.sum(dim=2), torch.full((20, 23), 1 / 23).double())
    torch.testing.assert_close(got.plan.sum(dim=1), torch.full((20, 5), 1 / 5).double(),
                               atol=1e-4, rtol=0)
    assert got.marginal_error.max() <= 1e-4


def test_padding_changes_nothing():
    costs = make_costs(1, 6, 3)
    alone = entropic_plan(costs, full(1, 6), full(1, 3), 0.05)
    padded = torch.full((2, 9, 5), 7.0, dtype=torch.float64)
    padded[0, :6, :3] = costs[0]
    rows, columns = full(2, 9), full(2, 5)
    rows[0, 6:], columns[0, 3:] = False, False

    got = entropic_plan(padded, rows, columns, 0.05)

    torch.testing.assert_close(got.plan[0, :6, :3], alone.plan[0], atol=1e-8, rtol=0)
    assert got.plan[0].sum() == pytest.approx(1)
    assert (got.plan[0, 6:] == 0).all() and (got.plan[0, :, 3:] == 0).all()


def test_says_when_it_did_not_converge():
    costs = make_costs(1, 10, 5)

    got = entropic_plan(costs, full(1, 10), full(1, 5), 1e-3, sinkhorn_steps=1, newton_steps=0)

    assert got.iterations == 1
    columns = got.plan.sum(dim=1)
    assert got.marginal_error.item() == pytest.approx((columns - 0.2).abs().max().item())
    assert got.marginal_error > 1e-3


def test_a_solved_problem_takes_no_further_step():
    costs = make_costs(4, 30, 5)
    first = entropic_plan(costs, full(4, 30), full(4, 5), 0.05)

    again = entropic_plan(costs, full(4, 30), full(4, 5), 0.05, first.potential)

    assert first.iterations > 0 and again.iterations == 0


@settings(max_examples=50, deadline=None)
@given(
    num=st.integers(1, 12), columns=st.integers(1, 6), scale=st.sampled_from([0, 1e-6, 1, 1e3]),
    epsilon=st.sampled_from([1e-3, 0.05, 10.0]), seed=st.integers(0, 999),
    dtype=st.sampled_from([torch.float32, torch.float64]))
def test_any_finite_cost_gives_a_finite_plan_with_exact_rows(num, columns, scale, epsilon, seed,
                                                            dtype):
    costs = make_costs(2, num, columns, scale, seed).to(dtype)

    got = entropic_plan(costs, full(2, num), full(2, columns), epsilon)

    assert got.plan.isfinite().all() and (got.plan >= 0).all()
    torch.testing.assert_close(got.plan.sum(dim=2), torch.full((2, num), 1 / num, dtype=dtype))
    error = (got.plan.sum(dim=1) - 1 / columns).abs().amax(dim=1)
    torch.testing.assert_close(got.marginal_error, error, atol=1e-5, rtol=0)


@settings(max_examples=30, deadline=None)
@given(num=st.integers(1, 12), columns=st.integers(1, 6), more=st.tuples(*[st.integers(0, 4)] * 2),
       seed=st.integers(0, 999))
def test_columns_are_balanced_whatever_the_order_and_the_padding(num, columns, more, seed):
    costs = make_costs(1, num, columns, 1, seed)
    plan = entropic_plan(costs, full(1, num), full(1, columns), 0.05).plan
    generator = torch.Generator().manual_seed(seed)
    rows, cols = (torch.randperm(n, generator=generator) for n in (num, columns))
    padded = torch.full((1, num + more[0], columns + more[1]), 7.0, dtype=costs.dtype)
    padded[:, :num, :columns] = costs[:, rows][:, :, cols]
    row_mask, col_mask = (torch.arange(n + extra)[None] < n
                          for n, extra in zip((num, columns), more))

    got = entropic_plan(padded, row_mask, col_mask, 0.05)

    torch.testing.assert_close(plan.sum(dim=1), torch.full_like(plan[:, 0], 1 / columns))
    torch.testing.assert_close(got.plan[:, :num, :columns], plan[:, rows][:, :, cols],
                               atol=1e-7, rtol=1e-5)
    assert not got.plan[:, num:].any() and not got.plan[:, :, columns:].any()


def test_a_warm_start_needs_fewer_steps_and_they_are_counted():
    costs = make_costs(4, 23, 5, scale=100.0)
    sharp = dict(row_mask=full(4, 23), col_mask=full(4, 5), epsilon=1e-2)
    cold = entropic_plan(costs, **sharp)
    moved = costs + 1e-3 * make_costs(4, 23, 5, seed=1)

    warm, again = (entropic_plan(moved, **sharp, potential=start)
                   for start in (cold.potential, None))

    torch.testing.assert_close(warm.plan, again.plan, atol=1e-4, rtol=0)
    assert 0 < warm.iterations < again.iterations
    assert again.iterations > entropic_plan(moved, **sharp, newton_steps=0).iterations > 0
