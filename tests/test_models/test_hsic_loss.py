import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from mmcluspro.models.losses import HSICLoss, hsic, hsic_of_pairs
from mmcluspro.registry import MODELS

FORMS = [('biased', False), ('biased', True), ('unbiased', False), ('unbiased', True)]


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def double_sum_kernel(x, sigma):
    n = len(x)
    kernel = np.zeros((n, n))
    squared = [float(((x[i] - x[j])**2).sum()) for i in range(n) for j in range(n) if i != j]
    width = sorted(squared)[(len(squared) - 1) // 2] if sigma is None else sigma**2
    for i in range(n):
        for j in range(n):
            kernel[i, j] = np.exp(-float(((x[i] - x[j])**2).sum()) / (2 * width))
    return kernel


def double_sum_hsic(k, m, estimator):
    """E kl + E k E l - 2 E[E k E l], with V-statistics or with sums over distinct indices."""
    n = len(k)
    every = range(n)
    if estimator == 'biased':
        joint = sum(k[i, j] * m[i, j] for i in every for j in every) / n**2
        apart = sum(k[i, j] for i in every for j in every) * m.sum() / n**4
        cross = sum(k[i, j] * m[i, q] for i in every for j in every for q in every) / n**3
        return (joint + apart - 2 * cross) * n**2 / (n - 1)**2
    joint = apart = cross = 0.0
    for i in every:
        for j in every:
            if j == i:
                continue
            joint += k[i, j] * m[i, j] / (n * (n - 1))
            for q in every:
                if q in (i, j):
                    continue
                cross += k[i, j] * m[i, q] / (n * (n - 1) * (n - 2))
                for r in every:
                    if r not in (i, j, q):
                        apart += k[i, j] * m[q, r] / (n * (n - 1) * (n - 2) * (n - 3))
    return joint + apart - 2 * cross


@pytest.mark.parametrize('estimator, normalized', FORMS)
@pytest.mark.parametrize('sigma', [None, 1.5])
@pytest.mark.parametrize('n', [4, 9])
def test_equals_the_double_sum_definition(estimator, normalized, sigma, n):
    x, y = draw(n, 3, seed=1), draw(n, 2, seed=2)
    y = y + x[:, :2]

    got = hsic(x, y, estimator, normalized, sigma, sigma)

    k, m = double_sum_kernel(x.numpy(), sigma), double_sum_kernel(y.numpy(), sigma)
    want = double_sum_hsic(k, m, estimator)
    if normalized:
        want /= np.sqrt(double_sum_hsic(k, k, estimator) * double_sum_hsic(m, m, estimator))
    assert got.item() == pytest.approx(want, rel=1e-9)


def test_unbiased_equals_ignite():
    ignite = pytest.importorskip('ignite.metrics')
    x, y = draw(30, 4), draw(30, 4) + 0.1 * draw(30, 4, seed=1)
    metric = ignite.HSIC(sigma_x=1.3, sigma_y=0.7)
    metric.update((x, y))

    got = hsic(x, y, 'unbiased', False, 1.3, 0.7)

    assert got.item() == pytest.approx(metric.compute(), rel=1e-5) and got > 0


def test_unbiased_is_zero_on_average_for_independent_data_and_biased_is_not():
    pairs = [(draw(32, 64, seed=2 * i), draw(32, 64, seed=2 * i + 1)) for i in range(60)]
    unbiased = torch.stack([hsic(x, y, 'unbiased', True) for x, y in pairs])
    biased = torch.stack([hsic(x, y, 'biased', True) for x, y in pairs])

    assert unbiased.mean().abs() < 3 * unbiased.std() / 60**0.5
    assert unbiased.mean().abs() < 0.02
    assert biased.mean() > 0.5


@pytest.mark.parametrize('estimator', ['biased', 'unbiased'])
def test_one_for_a_variable_with_itself(estimator):
    x = draw(20, 5)
    assert hsic(x, x, estimator, True).item() == pytest.approx(1)


@pytest.mark.parametrize('estimator, normalized', FORMS)
def test_gradient_equals_finite_differences(estimator, normalized):
    x, y = draw(6, 3).requires_grad_(), draw(6, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda a, b: hsic(a, b, estimator, normalized, 1.1, 0.9), (x, y))


def test_the_median_is_a_constant_of_the_gradient():
    x, y = draw(7, 3).requires_grad_(), draw(7, 2, seed=1)
    squared = torch.cdist(x, x).square()[~torch.eye(7, dtype=torch.bool)].detach()
    sigma = squared.median().sqrt().item()

    got = torch.autograd.grad(hsic(x, y, sigma_y=1.0), x)[0]

    want = torch.autograd.grad(hsic(x, y, sigma_x=sigma, sigma_y=1.0), x)[0]
    torch.testing.assert_close(got, want)


def test_mean_instead_of_median_when_most_pairs_coincide():
    """Prototypes shared by many images: a median of zero would be no width."""
    x = draw(2, 3)[torch.tensor([0, 0, 0, 0, 0, 0, 1, 1])]
    y = draw(8, 2, seed=1)
    sigma = (torch.cdist(x, x).square().sum() / 56).sqrt().item()

    got = hsic(x, y, 'unbiased', False, sigma_y=1.0)

    torch.testing.assert_close(got, hsic(x, y, 'unbiased', False, sigma, 1.0))


@pytest.mark.parametrize('estimator, normalized', FORMS)
@pytest.mark.parametrize('kind', ['constant', 'duplicates', 'nearly constant', 'zeros'])
@pytest.mark.parametrize('n', [1, 2, 3, 4, 5, 16])
def test_degenerate_features_give_finite_numbers(estimator, normalized, kind, n):
    x = normalize(draw(n, 8), dim=1).float()
    if kind == 'constant':
        x = x[:1].expand(n, -1).clone()
    elif kind == 'duplicates':
        x = x[torch.arange(n) % 2]
    elif kind == 'nearly constant':
        x = x[:1] + 1e-7 * x
    else:
        x = torch.zeros_like(x)
    x.requires_grad_()
    y = normalize(draw(n, 8, seed=1), dim=1).float()

    value = hsic(x, y, estimator, normalized)
    value.backward()

    assert value.isfinite() and x.grad.isfinite().all()
    if kind in ('constant', 'zeros'):
        assert value.abs() < 1e-4


@pytest.mark.parametrize('estimator, smallest', [('biased', 2), ('unbiased', 4)])
def test_too_few_samples_are_zero_with_zero_gradient(estimator, smallest):
    for n in range(smallest):
        x = draw(n, 3).requires_grad_()
        value = hsic(x, draw(n, 3), estimator)
        value.backward()
        assert value == 0 and (x.grad == 0).all()
    assert hsic(draw(smallest, 3), draw(smallest, 3), estimator) != 0


@settings(max_examples=30, deadline=None)
@given(n=st.integers(4, 20), seed=st.integers(0, 99))
def test_order_of_samples_does_not_matter_and_x_and_y_may_swap(n, seed):
    x, y = draw(n, 3, seed=seed), draw(n, 2, seed=seed + 1)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    for form in FORMS:
        torch.testing.assert_close(hsic(x[order], y[order], *form), hsic(x, y, *form))
        torch.testing.assert_close(hsic(y, x, *form), hsic(x, y, *form))


@settings(max_examples=20, deadline=None)
@given(n=st.integers(4, 7), dims=st.tuples(*[st.integers(1, 3)] * 2), seed=st.integers(0, 99),
       sigma=st.none() | st.floats(0.5, 3))
def test_any_small_case_equals_the_double_sum(n, dims, seed, sigma):
    x, y = (draw(n, dim, seed=seed + i) for i, dim in enumerate(dims))
    for estimator in ('biased', 'unbiased'):
        want = double_sum_hsic(double_sum_kernel(x, sigma), double_sum_kernel(y, sigma), estimator)
        got = hsic(x, y, estimator, False, sigma, sigma)
        assert got.item() == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize('estimator, normalized', FORMS)
def test_samples_that_do_not_count_change_nothing(estimator, normalized):
    x, y = draw(2, 9, 3), draw(2, 9, 2, seed=1)
    mask = torch.tensor([[True] * 9, [True, False, True, True, False, True, True, False, True]])
    want = [hsic(x[i, mask[i]], y[i, mask[i]], estimator, normalized) for i in range(2)]
    x[~mask], y[~mask] = torch.nan, 1e9

    got = hsic_of_pairs(x, y, estimator, normalized, mask=mask)

    torch.testing.assert_close(got, torch.stack(want))


def make_batch(num=12):
    features = [normalize(draw(num, 8, seed=i), dim=1).float().requires_grad_() for i in (0, 1)]
    tables = [normalize(draw(5, 8, seed=2), dim=1).float(),
              normalize(draw(7, 8, seed=3), dim=1).float()]
    rows = [torch.arange(num) % 5, torch.arange(num) % 7]
    return features, rows, tables


def test_loss_is_equation_11():
    (f_a, f_o), (row_a, row_o), (p_a, p_o) = make_batch()

    got = HSICLoss(loss_weight=0.5)([f_a, f_o], [row_a, row_o], [p_a, p_o])

    torch.testing.assert_close(got, 0.5 * (hsic(f_a, p_o[row_o]) + hsic(f_o, p_a[row_a])))


def test_with_one_branch_only_its_prototypes_count():
    (f_a, f_o), (row_a, _), (p_a, _) = make_batch()

    got = HSICLoss(loss_weight=1.0)([f_a, f_o], [row_a, None], [p_a, None])

    torch.testing.assert_close(got, hsic(f_o, p_a[row_a]))
    assert HSICLoss()([f_a, f_o], [None, None], [None, None]) == 0


def test_unassigned_images_are_left_out_and_prototypes_get_no_gradient():
    (f_a, f_o), (row_a, row_o), (p_a, p_o) = make_batch()
    row_o[:3] = -1
    p_o.requires_grad_()

    got = HSICLoss(loss_weight=1.0)([f_a, f_o], [row_a, row_o], [p_a, p_o])
    got.backward()

    torch.testing.assert_close(got, hsic(f_a[3:], p_o[row_o[3:]]) + hsic(f_o, p_a[row_a]))
    assert p_o.grad is None and (f_a.grad[:3] == 0).all()


def test_float32_under_autocast():
    batch = make_batch()
    want = HSICLoss()(*batch)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        got = HSICLoss()(*batch)
    assert got.dtype == torch.float32 and torch.equal(got, want)


@pytest.mark.parametrize('kwargs, message', [
    (dict(estimator='exact'), r"loss_pdl\.estimator .* got 'exact'"),
    (dict(sigma=0.0), r'loss_pdl\.sigma .* got 0\.0'),
    (dict(loss_weight=-1.0), r'loss_pdl\.loss_weight .* got -1\.0'),
    (dict(block=4), r'loss_pdl\.block .* got 4'),
])
def test_a_wrong_field_is_named_with_its_value(kwargs, message):
    with pytest.raises(ValueError, match=message):
        HSICLoss(**kwargs)


def test_built_from_config():
    assert MODELS.build(dict(type='mmcluspro.HSICLoss')).loss_weight == 0.5


@pytest.mark.parametrize('normalized', [False, True])
def test_blocks_average_the_hsic_of_their_samples(normalized):
    """Eleven samples in blocks of at most six: six and five, in their order."""
    x, y = draw(11, 3), draw(11, 2, seed=1)
    parts = [slice(0, 6), slice(6, 11)]

    def mean(a, b):
        values = [hsic(a[part], b[part], 'unbiased', False, 1.2, 0.8) for part in parts]
        return (6 * values[0] + 5 * values[1]) / 11

    got = hsic_of_pairs(x[None], y[None], 'unbiased', normalized, 1.2, 0.8, block=6)[0]

    want = mean(x, y)
    if normalized:
        sigma = {id(x): 1.2, id(y): 0.8}
        variances = [sum(len(z[part]) / 11 * hsic(z[part], z[part], 'unbiased', False,
                                                 sigma[id(z)], sigma[id(z)]) for part in parts)
                     for z in (x, y)]
        want = want / (variances[0] * variances[1]).sqrt()
    torch.testing.assert_close(got, want)


def test_a_batch_of_at_most_a_block_is_not_divided():
    batch = make_batch(16)
    assert torch.equal(HSICLoss(block=16)(*batch), HSICLoss(block=None)(*batch))
    assert not torch.equal(HSICLoss(block=8)(*batch), HSICLoss(block=None)(*batch))


def test_blocks_find_a_leak_as_the_whole_batch_does():
    num, dim = 512, 16
    objects = torch.arange(num) % 7
    tables = [normalize(draw(5, dim, seed=2), dim=1).float(),
              normalize(draw(7, dim, seed=3), dim=1).float()]
    rows = [torch.arange(num) % 5, objects]
    leak = normalize(tables[1][objects] + draw(num, dim, seed=4).float() / 4, dim=1)
    features = [leak.requires_grad_(), normalize(draw(num, dim, seed=5), dim=1).float()]
    found = {}
    for block in (None, 64):
        value = HSICLoss(block=block)(features, rows, tables)
        found[block] = value, torch.autograd.grad(value, features[0])[0]

    assert found[64][0].item() == pytest.approx(found[None][0].item(), rel=0.1)
    cosine = torch.cosine_similarity(found[64][1].flatten(), found[None][1].flatten(), dim=0)
    assert cosine > 0.9
