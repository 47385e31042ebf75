from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.nn.functional import normalize

from mmcluspro.models.prototypes import entropic_plan, exact, structure_aware_plan
from mmcluspro.models.prototypes.exact import exact_plan
from mmcluspro.models.prototypes.problems import Branches, build_problems, plan_rows


def make_problem(num, columns, temperature=1.0, seed=0, dim=8):
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(1, dim, generator=generator, dtype=torch.float64)
    near = lambda n: normalize(
        centre + 1.5 * torch.randn(n, dim, generator=generator, dtype=torch.float64), dim=1)
    features, prototypes = near(num), near(columns)
    log_q = torch.log_softmax(features @ prototypes.T / temperature, dim=1)
    return log_q, features @ features.T


def solve(log_q, similarity, **kwargs):
    num, columns = log_q.shape
    plan, report = structure_aware_plan(
        log_q[None], similarity[None], torch.ones(1, num, dtype=torch.bool),
        torch.ones(1, columns, dtype=torch.bool), **kwargs)
    return plan[0], report


def objective(plan, log_q, similarity, kappa, epsilon):
    """Eq. 7 with entropy, from its definition."""
    weighted = log_q.exp() * plan
    structure = (similarity * (weighted @ weighted.T)).sum()
    return (-log_q * plan).sum() + epsilon * torch.xlogy(plan, plan).sum() - kappa * structure


def best_of_scipy(log_q, similarity, kappa, epsilon, starts=10):
    num, columns = log_q.shape
    constraint = np.zeros((num + columns - 1, num * columns))
    for i in range(num):
        constraint[i, i * columns:(i + 1) * columns] = 1
    for k in range(columns - 1):
        constraint[num + k, k::columns] = 1
    target = np.r_[np.full(num, 1 / num), np.full(columns - 1, 1 / columns)]

    def value_and_gradient(flat):
        plan = torch.from_numpy(flat.reshape(num, columns)).requires_grad_()
        value = objective(plan, log_q, similarity, kappa, epsilon)
        return value.item(), torch.autograd.grad(value, plan)[0].numpy().ravel()

    rng = np.random.default_rng(0)
    values = []
    for _ in range(starts):
        start = rng.dirichlet(np.full(columns, 0.3), num) + 1e-6
        for _ in range(100):
            start *= 1 / columns / start.sum(axis=0)
            start *= 1 / num / start.sum(axis=1, keepdims=True)
        result = minimize(
            value_and_gradient, start.ravel(), jac=True, method='SLSQP',
            bounds=[(1e-10, 1)] * start.size, options=dict(maxiter=500, ftol=1e-12),
            constraints=dict(type='eq', fun=lambda g: constraint @ g - target,
                             jac=lambda g: constraint))
        if np.abs(constraint @ result.x - target).max() < 1e-7:
            values.append(result.fun)
    return min(values)


@pytest.mark.parametrize('num, columns', [(4, 4), (5, 2), (6, 3)])
@pytest.mark.parametrize('kappa, temperature', [(1.0, 1.0), (1.0, 0.1), (10.0, 1.0), (10.0, 0.1)])
def test_reaches_the_best_that_scipy_finds_from_many_starts(num, columns, kappa, temperature):
    problem = make_problem(num, columns, temperature, seed=num)

    plan, report = solve(*problem, kappa=kappa, epsilon=0.05, max_iter=100)

    assert report.converged.all()
    reached = objective(plan, *problem, kappa, 0.05).item()
    assert report.objective.item() == pytest.approx(reached, abs=1e-9)
    best = best_of_scipy(*problem, kappa, 0.05)
    assert reached <= best + 0.01 * abs(best)


@pytest.mark.parametrize('num, columns', [(3, 2), (12, 5), (40, 5)])
@pytest.mark.parametrize('kappa', [0.5, 1.0, 10.0])
def test_first_order_condition(num, columns, kappa):
    """At a solution the gradient is u_n + v_k: a constant plus a row and a column term."""
    log_q, similarity = make_problem(num, columns, 0.3)

    plan, report = solve(log_q, similarity, kappa=kappa, max_iter=200, tol=1e-13)

    leaf = plan.clone().requires_grad_()
    value = objective(leaf, log_q, similarity, kappa, 0.05)
    gradient = torch.autograd.grad(value, leaf)[0]
    rest = gradient - gradient.mean(0) - gradient.mean(1, keepdim=True) + gradient.mean()
    assert (rest * plan * num).abs().max() < 1e-4
    assert report.gap.item() < 1e-6


@pytest.mark.parametrize('kappa', [0.1, 1.0, 30.0, 300.0])
@pytest.mark.parametrize('epsilon', [0.01, 0.2])
def test_objective_never_rises(kappa, epsilon):
    problem = make_problem(25, 5, 0.2)
    values = [
        objective(solve(*problem, kappa=kappa, epsilon=epsilon, max_iter=steps)[0], *problem,
                  kappa, epsilon).item() for steps in range(1, 8)
    ]

    _, report = solve(*problem, kappa=kappa, epsilon=epsilon, max_iter=7)

    assert np.diff(values).max() <= 1e-12
    assert (report.trace.diff(dim=0) <= 0).all()
    assert values[0] < report.trace[0].item()


@pytest.mark.parametrize('kappa', [30.0, 300.0])
def test_line_search_where_full_steps_overshoot(kappa, monkeypatch):
    """Repulsion instead of coherence makes the structure term convex."""
    log_q, similarity = make_problem(12, 3, 0.2)
    run = lambda: solve(log_q, -similarity, kappa=kappa, max_iter=500, tol=1e-12)[1].trace[:, 0]
    searched = run()
    monkeypatch.setattr(exact, 'armijo', lambda objective, value, *_: value.new_ones(1, 1, 1))
    full_steps = run()

    assert (full_steps.diff() > 1e-3).any()
    assert (searched.diff() <= 0).all()
    best = best_of_scipy(log_q, -similarity, kappa, 0.05, starts=2)
    assert searched[-1].item() <= best + 0.01 * abs(best)


def test_without_structure_it_is_entropic_transport():
    log_q, similarity = make_problem(15, 4, 0.2)

    plan, _ = solve(log_q, similarity, kappa=0.0)

    rows, columns = torch.ones(1, 15).bool(), torch.ones(1, 4).bool()
    want = entropic_plan(-log_q[None], rows, columns, 0.05).plan[0]
    torch.testing.assert_close(plan, want, atol=1e-9, rtol=0)


def test_units_of_equation_8():
    """N * F(G) is Eq. 7 in L = N G with kappa / N, up to the constant of the entropy."""
    num, kappa, epsilon = 9, 2.0, 0.05
    problem = make_problem(num, 3)
    plan, report = solve(*problem, kappa=kappa, epsilon=epsilon)

    in_rows_of_one = objective(num * plan, *problem, kappa / num, epsilon)

    assert (num * plan).sum(dim=1).numpy() == pytest.approx(1)
    want = in_rows_of_one - epsilon * num * np.log(num)
    assert num * report.objective.item() == pytest.approx(want.item())


@pytest.mark.parametrize('copies', [2, 5])
def test_kappa_means_the_same_for_any_number_of_features(copies):
    """Repeating every feature repeats its plan: the class's size must not matter."""
    log_q, similarity = make_problem(6, 3, 0.2)
    once, _ = solve(log_q, similarity, kappa=5.0, tol=1e-13, max_iter=100)

    many, _ = solve(log_q.repeat(copies, 1), similarity.repeat(copies, copies), kappa=5.0,
                    tol=1e-13, max_iter=100)

    torch.testing.assert_close(copies * many, once.repeat(copies, 1), atol=1e-6, rtol=0)


def test_says_when_it_did_not_converge():
    problem = make_problem(25, 5, 0.2)

    _, report = solve(*problem, kappa=10.0, max_iter=1)

    assert report.iterations.tolist() == [1]
    assert not report.converged.any()


def test_the_coupling_of_a_feature_is_its_similarity_times_z():
    """Where a problem serves several features, no table of their similarities is made."""
    torch.manual_seed(0)
    features = torch.randn(2, 9, 6)
    labels = torch.randint(3, (2, 9))
    context = [torch.randn(4, 7, 6), torch.randn(3, 7, 6)]
    problems = build_problems(Branches(
        features, torch.ones(2, 9, dtype=torch.bool), labels,
        [torch.randn(8, 6), torch.randn(6, 6)],
        [torch.arange(0, 9, 2), torch.arange(0, 7, 2)], 2, context,
        [torch.full((4, ), 7), torch.full((3, ), 7)]), 'class')
    coupling = torch.randn(len(problems.cosine), 2, 7)

    found = problems.coupled(coupling).view(2, 9, 2)

    assert all(layout.own_similarity is None for layout in problems.layouts)
    for branch in range(2):
        for i in range(9):
            label = int(labels[branch, i])
            similarity = context[branch][label] @ features[branch, i]
            torch.testing.assert_close(found[branch, i], coupling[branch * 4 + label] @ similarity)


def test_the_line_search_takes_a_step_that_falls_enough():
    """f(t) = (t - 0.01)² - 0.01²: the full step rises, and t = 0.02 (0 again) is too far."""
    asked = []

    def along(step):
        asked.append(float(step))
        return (step.flatten() - 0.01)**2 - 1e-4

    value, slope = torch.zeros(1, dtype=torch.float64), torch.tensor([-0.02], dtype=torch.float64)
    step = float(exact.armijo(along, value, slope, torch.ones(1, dtype=torch.bool), c1=0.4))

    assert asked[0] == 1 and step == asked[-1]
    for longer, shorter in zip(asked, asked[1:]):  # the parabola is exact, but no jump is larger
        assert longer / 10 - 1e-12 <= shorter <= longer / 2 + 1e-12
    assert (step - 0.01)**2 - 1e-4 <= 0.4 * step * -0.02


def test_the_line_search_accepts_at_the_bound_itself():
    """Of a straight line with slope -1, c1 = 1 asks for exactly what the full step gives."""
    straight = lambda step: -step.flatten()
    value, slope = torch.zeros(1), -torch.ones(1)
    assert float(exact.armijo(straight, value, slope, torch.ones(1, dtype=torch.bool), c1=1.0)) == 1


def test_short_steps_need_a_short_fall():
    """f(t) = 4t² - 0.05t: with c1 = 0.5 the first step that falls enough is below 0.00625."""
    curve = lambda step: 4 * step.flatten()**2 - 0.05 * step.flatten()
    value, slope = torch.zeros(1).double(), torch.full((1, ), -0.05).double()
    step = float(exact.armijo(curve, value, slope, torch.ones(1, dtype=torch.bool), c1=0.5))
    assert 0.000625 <= step <= 0.00625


def test_the_line_search_halves_the_step_at_least():
    """f(t) = 0.8t² - t falls by 0.2 at t = 1; its minimum, 0.625, is more than half of that."""
    asked = []

    def along(step):
        asked.append(float(step))
        return 0.8 * step.flatten()**2 - step.flatten()

    exact.armijo(along, torch.zeros(1), -torch.ones(1), torch.ones(1, dtype=torch.bool), c1=0.4)
    assert asked == [1.0, 0.5]


@pytest.mark.parametrize('kappa, epsilon', [(1.0, 0.05), (0.5, 0.2)])
def test_potentials_and_coupling_of_the_exact_solver_give_its_plan_again(kappa, epsilon):
    """The fixed point: rows made of v and Z (solution.py) balance the columns, and make Z."""
    torch.manual_seed(0)
    features = normalize(torch.randn(2, 12, 6, dtype=torch.float64), dim=2)
    prototypes = normalize(torch.randn(2, 3, 6, dtype=torch.float64), dim=2)
    problems = SimpleNamespace(
        row_mask=torch.ones(2, 12, dtype=torch.bool), col_mask=torch.ones(2, 3, dtype=torch.bool),
        similarity=features @ features.transpose(1, 2),
        cosine=prototypes @ features.transpose(1, 2))
    found = exact_plan(problems, torch.tensor([True, True]), kappa, epsilon, max_iter=500,
                       tol=1e-14)
    coupled = torch.bmm(found.coupling, problems.similarity)
    rows = plan_rows(problems.cosine, coupled, found.potential[:, :, None],
                     problems.col_mask[:, :, None], kappa, epsilon, 1.0)
    torch.testing.assert_close(rows.mean(dim=2), torch.full((2, 3), 1 / 3, dtype=torch.float64),
                               rtol=0, atol=1e-4)
    q = problems.cosine.softmax(dim=1)
    torch.testing.assert_close(q * rows / 12, found.coupling, rtol=0, atol=1e-4)
