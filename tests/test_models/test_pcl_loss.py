import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcluspro.models.losses import PCLLoss
from mmcluspro.registry import MODELS


def make_case(num=6, dim=8, tables=(10, 15), seed=0):
    generator = torch.Generator().manual_seed(seed)
    unit = lambda n: F.normalize(torch.randn(n, dim, generator=generator), dim=1)
    features = [unit(num).requires_grad_() for _ in tables]
    rows = [torch.randint(size, (num, ), generator=generator) for size in tables]
    return features, rows, [unit(size) for size in tables]


def equation_10(feature, positive, table, temperature):
    scores = [torch.exp(feature @ p / temperature) for p in table]
    return -torch.log(scores[positive] / sum(scores))


@pytest.mark.parametrize('num', [1, 6])
@pytest.mark.parametrize('temperature', [0.1, 1.0])
def test_equals_equation_10_over_both_branches(num, temperature):
    features, rows, tables = make_case(num)

    got = PCLLoss(temperature=temperature, loss_weight=0.2)(features, rows, tables)

    table = torch.cat(tables)
    terms = [equation_10(f, r, table, temperature) for f, r in zip(features[0], rows[0])]
    terms += [equation_10(f, 10 + r, table, temperature) for f, r in zip(features[1], rows[1])]
    torch.testing.assert_close(got, 0.2 * torch.stack(terms).mean())


@settings(max_examples=30, deadline=None)
@given(num=st.integers(1, 6), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3),
       seed=st.integers(0, 99))
def test_any_number_of_branches_in_any_order(num, sizes, seed):
    features, rows, tables = make_case(num, tables=sizes, seed=seed)
    rows = [row - (torch.arange(num) % 3 == 1) * 99 for row in rows]  # negative: left out
    first = [sum(sizes[:i]) for i in range(len(sizes))]
    terms = [equation_10(f, start + r, torch.cat(tables), 0.5)
             for branch, row, start in zip(features, rows, first) for f, r in zip(branch, row)
             if r >= 0]
    loss = PCLLoss(temperature=0.5, loss_weight=1.0)

    got = loss(features, rows, tables)

    torch.testing.assert_close(got, torch.stack(terms).mean())
    torch.testing.assert_close(loss(features[::-1], rows[::-1], tables[::-1]), got)


def test_equals_cross_entropy():
    features, rows, tables = make_case()

    got = PCLLoss(loss_weight=1.0)(features, rows, tables)

    logits = torch.cat(features) @ torch.cat(tables).T / 0.1
    torch.testing.assert_close(got, F.cross_entropy(logits, torch.cat([rows[0], rows[1] + 10])))


@pytest.mark.parametrize('branch', [0, 1])
def test_one_branch_knows_only_its_own_prototypes(branch):
    features, rows, tables = make_case()
    without = lambda values: [v if i == branch else None for i, v in enumerate(values)]

    got = PCLLoss(loss_weight=1.0)(features, without(rows), without(tables))

    want = F.cross_entropy(features[branch] @ tables[branch].T / 0.1, rows[branch])
    torch.testing.assert_close(got, want)


def test_a_weight_of_zero_is_allowed():
    assert PCLLoss(loss_weight=0)(*make_case()) == 0


def test_unassigned_features_are_left_out():
    features, rows, tables = make_case()
    rows[0][2:], rows[1][:5] = -1, -1

    got = PCLLoss(loss_weight=1.0)(features, rows, tables)
    got.backward()

    short = [features[0][:2], features[1][5:]], [rows[0][:2], rows[1][5:]]
    torch.testing.assert_close(got, PCLLoss(loss_weight=1.0)(*short, tables))
    assert (features[0].grad[2:] == 0).all() and (features[0].grad[:2] != 0).any()


def test_nothing_assigned_is_zero_with_zero_gradient():
    features, rows, tables = make_case()

    loss = PCLLoss()(features, [torch.full_like(r, -1) for r in rows], tables)
    loss.backward()

    assert loss == 0 and (features[0].grad == 0).all()
    assert PCLLoss()(features, [None, None], [None, None]) == 0


def test_prototypes_get_no_gradient_and_scale_of_features_does_not_matter():
    features, rows, tables = make_case()
    tables = [table.requires_grad_() for table in tables]

    loss = PCLLoss()(features, rows, tables)
    loss.backward()

    assert all(table.grad is None for table in tables)
    torch.testing.assert_close(PCLLoss()([7 * f for f in features], rows, tables), loss)


def test_float32_under_autocast():
    features, rows, tables = make_case()
    want = PCLLoss()(features, rows, tables)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        got = PCLLoss()(features, rows, tables)
    assert got.dtype == torch.float32 and torch.equal(got, want)


def test_built_from_config_with_the_numbers_of_the_paper():
    loss = MODELS.build(dict(type='mmcluspro.PCLLoss'))
    assert (loss.temperature, loss.loss_weight) == (0.1, 0.2)


@pytest.mark.parametrize('kwargs, message', [
    (dict(temperature=0.0), r'loss_pcl\.temperature .* got 0\.0'),
    (dict(loss_weight=-1.0), r'loss_pcl\.loss_weight .* got -1\.0'),
])
def test_a_wrong_field_is_named_with_its_value(kwargs, message):
    with pytest.raises(ValueError, match=message):
        PCLLoss(**kwargs)
