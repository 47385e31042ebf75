import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from mmcluspro.models.prototypes import PrototypeBank, held_out_rule, share_rule
from mmcluspro.models.prototypes.bank import reseeded
from mmcluspro.models.prototypes.problems import make_offsets
from mmcluspro.models.prototypes.start import spherical_kmeans
from mmcluspro.registry import MODELS

DIM = 16


def draw(*shape, seed=0):
    return normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def modes(num_modes, per_mode, noise=0.3, dim=DIM, seed=0):
    """Features of one primitive with planted modes, and the mode of each."""
    hidden = torch.arange(num_modes).repeat_interleave(per_mode)
    features = draw(num_modes, dim, seed=seed)[hidden] + noise * draw(len(hidden), dim,
                                                                     seed=seed + 1)
    return normalize(features, dim=1), hidden


def make_data(num=90, num_classes=3, seed=0):
    return draw(num, DIM, seed=seed), torch.arange(num) % num_classes


def make_bank(num_classes=3, init=True, **kwargs):
    bank = PrototypeBank(num_classes, DIM, **kwargs)
    if init:
        bank.initialise(*make_data(num_classes=num_classes))
    return bank


def norms(bank):
    return bank.prototypes.norm(dim=1)


@pytest.mark.parametrize('num_classes', [1, 4])
@pytest.mark.parametrize('num_prototypes', [1, 2, 5, 'share', 'auto'])
def test_unit_norm_after_initialisation_and_updates(num_classes, num_prototypes):
    bank = make_bank(num_classes, num_prototypes=num_prototypes, momentum=0.5)
    for step in range(3):
        features, labels = make_data(20, num_classes, seed=step)
        bank.update(features, labels, bank.assign(features, labels))

    torch.testing.assert_close(norms(bank), torch.ones(len(bank.prototypes)))
    assert len(bank.prototypes) == bank.offsets[-1] == bank.sizes.sum()
    assert (bank.sizes >= 1).all()


def test_initialisation_finds_planted_modes():
    features, hidden = modes(5, 40)
    bank = PrototypeBank(1, DIM, num_prototypes=5)

    bank.initialise(features, torch.zeros(200, dtype=torch.long))

    nearest = (features @ bank.prototypes.T).argmax(dim=1)
    table = torch.zeros(5, 5).index_put_((hidden, nearest), torch.ones(200), accumulate=True)
    assert table.max(dim=1).values.sum() >= 0.98 * 200
    assert sorted(table.argmax(dim=1).tolist()) == [0, 1, 2, 3, 4]


def test_kmeans_improves_on_its_seeds_and_ends_at_means():
    features = draw(200, DIM)
    centres = spherical_kmeans(features, 6, torch.Generator().manual_seed(0), steps=100)

    nearest = (features @ centres.T).argmax(dim=1)

    for k in range(6):
        mean = normalize(features[nearest == k].sum(dim=0), dim=0)
        torch.testing.assert_close(centres[k], mean)


@pytest.mark.parametrize('count', [1, 2, 4])
@pytest.mark.parametrize('kind', ['distinct', 'equal', 'zeros'])
def test_fewer_samples_than_prototypes_start_in_distinct_directions(count, kind):
    features = draw(count, DIM)
    if kind == 'equal':
        features = features[:1].repeat(count, 1)
    elif kind == 'zeros':
        features = torch.zeros(count, DIM)
    bank = PrototypeBank(1, DIM, num_prototypes=5)

    bank.initialise(features, torch.zeros(count, dtype=torch.long))

    cosine = bank.prototypes @ bank.prototypes.T - torch.eye(5)
    assert cosine.max() < 1 - 1e-4
    torch.testing.assert_close(norms(bank), torch.ones(5))
    if kind != 'zeros':
        assert (bank.prototypes @ features[0]).max() > 0.98


def test_the_seed_decides_the_initialisation_and_nothing_else_does():
    first, state = make_bank(seed=1), torch.get_rng_state()
    torch.rand(7)
    again, other = make_bank(seed=1), make_bank(seed=2)

    assert torch.equal(first.prototypes, again.prototypes)
    assert not torch.equal(first.prototypes, other.prototypes)
    torch.set_rng_state(state)


def test_an_uninitialised_bank_says_what_to_do():
    bank = make_bank(init=False)
    features, labels = make_data(6)
    for call in (lambda: bank.assign(features, labels), bank.health,
                 lambda: bank.update(features, labels, labels)):
        with pytest.raises(RuntimeError, match='initialise.* first'):
            call()


@settings(max_examples=25, deadline=None)
@given(num=st.integers(1, 24), padding=st.integers(0, 5), num_classes=st.integers(1, 4),
       normalize_mean=st.booleans(), seed=st.integers(0, 999))
def test_neither_order_nor_features_that_are_left_out_change_an_update(
        num, padding, num_classes, normalize_mean, seed):
    first, second = (make_bank(num_classes, num_prototypes=3, momentum=0.7, correct_only=False,
                               normalize_mean=normalize_mean) for _ in range(2))
    features, labels = make_data(num, num_classes, seed)
    rows = first.assign(features, labels)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(num + padding, generator=generator)
    more = draw(padding, DIM, seed=seed + 1), torch.zeros(padding, dtype=torch.long)

    first.update(features, labels, rows)
    second.update(torch.cat([features, more[0]])[order], torch.cat([labels, more[1]])[order],
                  torch.cat([rows, more[1] - 1])[order])

    torch.testing.assert_close(second.prototypes, first.prototypes)


@pytest.mark.parametrize('momentum', [0.0, 0.9, 1.0])
@pytest.mark.parametrize('normalize_mean', [False, True])
def test_update_is_equation_9_and_leaves_the_rest_alone(momentum, normalize_mean):
    bank = make_bank(momentum=momentum, correct_only=False, normalize_mean=normalize_mean)
    before = bank.prototypes.clone()
    features = draw(6, DIM, seed=5)
    rows = torch.tensor([1, 1, 1, 11, 14, 11])

    bank.update(features, rows // 5, rows)

    for row in range(15):
        own = features[rows == row]
        if len(own):
            mean = own.mean(dim=0)
            mean = mean / mean.norm() if normalize_mean else mean
            want = momentum * before[row] + (1 - momentum) * mean
            torch.testing.assert_close(bank.prototypes[row], want / want.norm())
        else:
            assert torch.equal(bank.prototypes[row], before[row])


@pytest.mark.parametrize('correct_only', [False, True])
def test_only_correctly_classified_features_move_a_prototype(correct_only):
    """Algorithm 1: a feature counts if its nearest prototype of all is one of its primitive's."""
    bank = make_bank(momentum=0.5, correct_only=correct_only)
    before = bank.prototypes.clone()
    features = normalize(before[[0, 7]] + 0.1 * draw(2, DIM), dim=1)
    labels, rows = torch.tensor([0, 0]), torch.tensor([0, 1])

    bank.update(features, labels, rows)

    assert not torch.equal(bank.prototypes[0], before[0])
    assert torch.equal(bank.prototypes[1], before[1]) == correct_only


@pytest.mark.parametrize('batch', [1, 5, 30])
def test_momentum_per_epoch_does_not_depend_on_the_batch_size(batch):
    """After one pass over equal features, ``momentum`` of a prototype is left."""
    start = torch.eye(DIM)[:1]
    feature = torch.eye(DIM)[1:2]
    bank = PrototypeBank(2, DIM, num_prototypes=1, single='momentum', momentum=0.25,
                         momentum_unit='epoch', correct_only=False)
    bank.initialise(start.repeat(2, 1), torch.tensor([0, 1]), counts=torch.tensor([30, 7]))
    weight = 1.0
    for _ in range(30 // batch):
        rows = torch.zeros(batch, dtype=torch.long)
        before = bank.prototypes[0].clone()
        bank.update(feature.expand(batch, -1), rows, rows)
        mu = 0.25**(batch / 30)
        want = mu * before + (1 - mu) * feature[0]
        torch.testing.assert_close(bank.prototypes[0], want / want.norm())
        weight *= mu

    assert weight == pytest.approx(0.25)


def test_lag_is_the_distance_to_the_mean_of_the_nearest_stored_features():
    bank = make_bank(num_classes=1, num_prototypes=2, queue_size=4, momentum=1.0)
    features, labels = draw(4, DIM, seed=8), torch.zeros(4, dtype=torch.long)
    bank.assign(features, labels)

    nearest = (features @ bank.prototypes.T).argmax(dim=1)
    lags = [1 - torch.cosine_similarity(bank.prototypes[k], features[nearest == k].mean(dim=0),
                                        dim=0) for k in nearest.unique()]
    assert bank.health()['lag'] == pytest.approx(torch.stack(lags).mean().item(), abs=1e-6)


def test_health_tells_the_share_that_transport_decided():
    bank = make_bank(queue_size=0)
    features, labels = draw(12, DIM, seed=4), torch.tensor([0] * 9 + [1] * 3)
    bank.assign(features, labels)
    assert bank.health()['transport'] == pytest.approx(9 / 12)
    queued = make_bank(queue_size=8)
    queued.assign(features, labels)
    assert queued.health()['transport'] == 1
    assert queued.health()['transport'] == 0  # nothing since the last call


@pytest.mark.parametrize('queue_size', [0, 64])
def test_a_feature_that_is_not_finite_changes_no_other_assignment(queue_size):
    features, labels = make_data(40, 2, seed=3)
    want = make_bank(num_classes=2, queue_size=queue_size).assign(features[1:], labels[1:])
    features[0, 2] = torch.nan

    got = make_bank(num_classes=2, queue_size=queue_size).assign(features, labels)

    assert got[0] == -1 and torch.equal(got[1:], want)


def test_identical_features_take_the_nearest_prototype():
    bank = make_bank(num_classes=1, queue_size=0)
    feature = normalize(bank.prototypes[3:4] + 0.2 * draw(1, DIM, seed=5), dim=1)

    rows = bank.assign(feature.repeat(20, 1), torch.zeros(20, dtype=torch.long))

    assert rows.tolist() == [3] * 20


def test_update_that_cancels_keeps_the_prototype():
    bank = make_bank(momentum=0.5)
    before = bank.prototypes.clone()

    bank.update(-before[2:3], torch.tensor([0]), torch.tensor([2]))

    assert torch.equal(bank.prototypes, before)


def test_unassigned_and_not_finite_features_are_left_out():
    bank = make_bank(momentum=0.5, queue_size=4, correct_only=False)
    before = bank.prototypes.clone()
    features = draw(3, DIM)
    features[0, 3], features[1, 0] = torch.nan, torch.inf

    bank.update(features, torch.zeros(3, dtype=torch.long), torch.tensor([0, 1, -1]))

    assert torch.equal(bank.prototypes, before)
    assert bank.queue.features.isfinite().all() and bank.usage.isfinite().all()


@pytest.mark.parametrize('assigner', ['LocalAwareOT', 'ClassicalOT', 'CosineAssigner'])
def test_same_inputs_give_the_same_bits(assigner):
    banks = [make_bank(momentum=0.9, queue_size=3, assigner=dict(type=f'mmcluspro.{assigner}'))
             for _ in range(2)]
    for step in range(4):
        features, labels = make_data(30, seed=step)
        for bank in banks:
            bank.update(features, labels, bank.assign(features, labels))

    for one, other in zip(banks[0].state_dict().values(), banks[1].state_dict().values()):
        assert torch.equal(one, other)


def test_online_clustering_finds_modes_from_a_bad_start():
    features, hidden = modes(3, 100)
    labels = torch.zeros(300, dtype=torch.long)
    bank = PrototypeBank(1, DIM, num_prototypes=3, momentum=0.8)
    bank.initialise(features[:1], labels[:1])  # one sample: three almost equal directions
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        batch = torch.randperm(300, generator=generator)[:48]
        rows = bank.assign(features[batch], labels[batch])
        bank.update(features[batch], labels[batch], rows)

    nearest = (features @ bank.prototypes.T).argmax(dim=1)
    table = torch.zeros(3, 3).index_put_((hidden, nearest), torch.ones(300), accumulate=True)
    assert sorted(table.argmax(dim=1).tolist()) == [0, 1, 2]
    assert table.max(dim=1).values.sum() >= 0.95 * 300


def test_queue_gives_rare_primitives_a_plan():
    features, labels = make_data(60)
    alone, queued = make_bank(queue_size=0), make_bank()
    for bank in (alone, queued):
        bank.assign(features[:3], labels[:3])

    assert len(alone.assigner.report.classes) == 0
    assert queued.assigner.report.classes.tolist() == [0, 1, 2]


def test_the_queue_is_there_where_the_problem_wants_it():
    size = lambda **kwargs: (lambda queue: queue and queue.size)(PrototypeBank(
        3, DIM, **kwargs).queue)
    assert size() == 64
    assert size(queue_size=8) == 8
    assert size(queue_size=0) is None
    assert size(num_prototypes=1) is None
    assert size(assigner=dict(type='mmcluspro.CosineAssigner')) is None
    assert size(assigner=dict(type='mmcluspro.LocalAwareOT', scope='batch')) is None
    with pytest.raises(ValueError, match=r"bank\.queue_size=8 needs assigner\.scope='class'"):
        size(queue_size=8, assigner=dict(type='mmcluspro.LocalAwareOT', scope='batch'))


def test_training_feeds_the_queue_before_the_assignment():
    bank = make_bank(queue_size=2)
    features, labels = draw(3, DIM, seed=7), torch.tensor([1, 1, 1])
    before = bank.queue.features.clone()

    bank.eval()
    bank.assign(3 * features, labels)
    assert torch.equal(bank.queue.features, before)
    bank.train()
    bank.assign(3 * features, labels)

    stored, pushed = bank.queue.context()
    assert (pushed >= 2).all()
    cosine = stored[1] @ features[1:].T
    assert cosine.amax(dim=1).tolist() == pytest.approx([1, 1])
    assert sorted(cosine.argmax(dim=1).tolist()) == [0, 1]


@pytest.mark.parametrize('width', [DIM - 1, DIM + 1])
def test_features_of_another_width_name_the_field(width):
    bank, labels = make_bank(), torch.zeros(6, dtype=torch.long)
    for call in (lambda f: bank.assign(f, labels), lambda f: bank.update(f, labels, labels),
                 lambda f: bank.initialise(f, labels)):
        with pytest.raises(ValueError, match=fr'{width} channels.*head\.in_channels={width}'):
            call(torch.randn(6, width))


def test_k_of_one_is_the_mean_of_the_current_batch():
    bank = make_bank(num_prototypes=1)
    before = bank.prototypes.clone()
    features, labels = draw(6, DIM, seed=3), torch.tensor([0, 0, 0, 2, 2, 0])

    rows = bank.assign(features, labels)

    assert torch.equal(rows, labels)
    torch.testing.assert_close(bank.prototypes[0],
                               normalize(features[labels == 0].mean(dim=0), dim=0))
    assert torch.equal(bank.prototypes[1], before[1])
    moved = bank.prototypes.clone()
    bank.update(features, labels, rows)
    torch.testing.assert_close(bank.prototypes, moved)
    bank.eval()
    bank.assign(-features, labels)
    torch.testing.assert_close(bank.prototypes, moved)


def test_k_of_one_with_momentum_on_demand():
    bank = make_bank(num_prototypes=1, single='momentum', momentum=0.9, correct_only=False,
                     normalize_mean=False)
    before = bank.prototypes.clone()
    features = draw(2, DIM, seed=3)

    rows = bank.assign(features, torch.tensor([0, 0]))

    assert torch.equal(bank.prototypes, before)
    bank.update(features, torch.tensor([0, 0]), rows)
    want = 0.9 * before[0] + 0.1 * features.mean(dim=0)
    torch.testing.assert_close(bank.prototypes[0], normalize(want, dim=0))


def test_primitives_without_samples_wait_for_their_first_features():
    bank = PrototypeBank(3, DIM, num_prototypes=2, momentum=0.5)
    bank.initialise(draw(20, DIM), torch.zeros(20, dtype=torch.long))
    assert bank.seeded.tolist() == [True, False, False]
    torch.testing.assert_close(norms(bank), torch.ones(6))
    features, labels = draw(4, DIM, seed=9), torch.tensor([0, 1, 1, 1])

    rows = bank.assign(features, labels)
    third = bank.prototypes[4:].clone()
    bank.update(features, labels, rows)

    assert rows[1:].tolist() == [-1, -1, -1] and rows[0] >= 0
    assert bank.seeded.tolist() == [True, True, False]
    mean = normalize(features[1:].mean(dim=0), dim=0)
    assert (bank.prototypes[2:4] @ mean > 0.9).all()
    assert not torch.equal(bank.prototypes[2], bank.prototypes[3])
    assert torch.equal(bank.prototypes[4:], third)
    assert (bank.assign(features, labels)[1:] >= 2).all()


def test_primitives_without_samples_are_an_error_on_demand():
    bank = PrototypeBank(3, DIM, missing='error')
    with pytest.raises(ValueError, match=r"primitives \[1, 2\]; .* bank\.missing='later'"):
        bank.initialise(draw(20, DIM), torch.zeros(20, dtype=torch.long))


def test_usage_finds_dead_prototypes_and_spares_absent_primitives():
    bank = make_bank(num_classes=2, num_prototypes=2, usage_decay=0.9)
    features = draw(10, DIM)
    assert not bank.dead().any() and bank.health()['balance'] == pytest.approx(1)
    for _ in range(5):
        bank.update(features, torch.zeros(10, dtype=torch.long), torch.zeros(10, dtype=torch.long))

    assert bank.count_usage().tolist() == pytest.approx(
        [1 - 0.5 * 0.9**50, 0.5 * 0.9**50, 0.5, 0.5], abs=1e-6)
    assert bank.dead().tolist() == [False, True, False, False]
    health = bank.health()
    assert health['used'] == pytest.approx(0.75)
    assert 0.5 < health['balance'] < 0.6 and health['drift'] > 0


def test_reseeding_moves_a_dead_prototype_to_the_worst_represented_feature():
    bank = PrototypeBank(2, 4, num_prototypes=2, usage_decay=0.5, reseed=True, momentum=1.0)
    eye = torch.eye(4)
    bank.initialise(eye[[0, 1, 2, 3]], torch.tensor([0, 0, 1, 1]))
    start = bank.prototypes.clone()
    first = int((start[:2] @ eye[0]).argmax())
    far = normalize(torch.tensor([[0.1, 0.2, 1.0, 0.0]]), dim=1)
    features = torch.cat([eye[[0]].repeat(9, 1), far])

    bank.update(features, torch.zeros(10, dtype=torch.long), torch.full((10, ), first))

    assert bank.prototypes[1 - first].tolist() == pytest.approx(far[0].tolist(), abs=1e-6)
    assert torch.equal(bank.prototypes[first], start[first])
    assert torch.equal(bank.prototypes[2:], start[2:])
    assert not bank.dead().any()


@pytest.mark.parametrize('num_prototypes', [3, 'share', 'auto'])
def test_saved_and_resumed(num_prototypes):
    kwargs = dict(num_prototypes=num_prototypes, queue_size=4, momentum=0.9)
    bank, copy = make_bank(**kwargs), make_bank(init=False, **kwargs)
    features, labels = make_data(30, seed=1)
    bank.update(features, labels, bank.assign(features, labels))

    copy.load_state_dict(bank.state_dict())

    for one in (bank, copy):
        one.update(features, labels, one.assign(features, labels))
    for one, other in zip(bank.state_dict().values(), copy.state_dict().values()):
        assert torch.equal(one, other)


@pytest.mark.parametrize('other, message', [
    (dict(num_prototypes=4), r'4 each\), the model wants 3 each: set model\.head\.bank'),
    (dict(num_prototypes=3, num_classes=2), 'prototypes of 2 primitives, the model 3'),
])
@pytest.mark.parametrize('strict', [True, False])
def test_a_checkpoint_of_other_shapes_does_not_load_silently(other, message, strict):
    with pytest.raises(ValueError, match=message):
        make_bank(num_prototypes=3).load_state_dict(make_bank(**other).state_dict(),
                                                    strict=strict)


@pytest.mark.parametrize('num_prototypes', [3, 'auto'])
def test_a_checkpoint_of_another_width_does_not_load_silently(num_prototypes):
    saved = PrototypeBank(3, DIM + 2, num_prototypes=3).state_dict()
    with pytest.raises(ValueError, match='18 channels, the model has 16'):
        make_bank(num_prototypes=num_prototypes).load_state_dict(saved, strict=False)


@pytest.mark.parametrize('count, want', [(1, 1), (50, 1), (51, 2), (100, 2), (101, 3), (150, 3),
                                         (151, 4), (200, 4), (201, 5), (900, 5)])
def test_share_rule_is_table_11(count, want):
    sizes = share_rule(torch.tensor([count, 1000 - count]))
    assert sizes[0] == want


def test_share_rule_takes_the_counts_of_the_training_set():
    bank = PrototypeBank(3, DIM, num_prototypes='share')
    bank.initialise(*make_data(), counts=torch.tensor([900, 60, 40]))
    assert bank.sizes.tolist() == [5, 2, 1]


def test_auto_finds_the_number_of_planted_modes():
    parts = [modes(k, 120 // k, noise=0.5, dim=64, seed=10 * k)[0] for k in (1, 2, 3, 5)]
    labels = torch.arange(4).repeat_interleave(120)
    few = draw(3, 64)

    sizes = held_out_rule(torch.cat([*parts, few]), torch.cat([labels, torch.full((3, ), 4)]), 6,
                          torch.Generator().manual_seed(0), max_prototypes=8)

    assert sizes.tolist() == [1, 2, 3, 5, 1, 1]


@pytest.mark.parametrize('kwargs, message', [
    (dict(num_prototypes=0), r'bank\.num_prototypes .* got 0'),
    (dict(num_prototypes='many'), r"bank\.num_prototypes .* got 'many'"),
    (dict(momentum=1.5), r'bank\.momentum .* got 1\.5'),
    (dict(queue_size=-1), r'bank\.queue_size .* got -1'),
    (dict(momentum_unit='year'), r"bank\.momentum_unit .* got 'year'"),
    (dict(single='mean'), r"bank\.single .* got 'mean'"),
    (dict(missing='zeros'), r"bank\.missing .* got 'zeros'"),
    (dict(dead_share=2.0), r'bank\.dead_share .* got 2\.0'),
])
def test_a_wrong_field_is_named_with_its_value(kwargs, message):
    with pytest.raises(ValueError, match=message):
        PrototypeBank(3, DIM, **kwargs)


def test_built_from_config():
    bank = MODELS.build(dict(type='mmcluspro.PrototypeBank', num_classes=3, dim=DIM))
    assert bank.momentum == 0.99 and bank.prototypes.shape == (15, DIM)


@pytest.mark.parametrize('sizes, total, offsets', [
    (2, 6, [0, 2, 4, 6]), (1, 2, [0, 1, 2]), ([1, 3], 4, [0, 1, 4]),
    (2, 5, None), (0, 4, None), (-2, 4, None), ([2, 2], 5, None), ([0, 4], 4, None)])
def test_where_each_primitive_begins(sizes, total, offsets):
    given_sizes = sizes if isinstance(sizes, int) else torch.tensor(sizes)
    if offsets is None:
        with pytest.raises(ValueError, match=rf'num_prototypes must .* the {total} rows'):
            make_offsets(given_sizes, total, torch.device('cpu'))
    else:
        assert make_offsets(given_sizes, total, torch.device('cpu')).tolist() == offsets


def test_banks_are_of_one_kind_by_their_settings():
    """Banks of one kind share their solves, so the objects inside must not count."""
    kinds = [make_bank(init=False, queue_size=size).kind for size in (4, 4, 8, 0, 0)]
    assert kinds[0][1:] == kinds[1][1:] and kinds[3][1:] == kinds[4][1:]
    assert len({kind[1:] for kind in kinds}) == 3


@pytest.mark.parametrize('dead_share', [0.1, 0.5, 0.9])
def test_a_prototype_is_dead_below_its_part_of_a_fair_share(dead_share):
    bank = make_bank(num_prototypes=4, dead_share=dead_share)
    bank.usage.copy_(torch.tensor([0.26, 0.24, 0.14, 0.02]).repeat(len(bank.usage) // 4))
    want = [usage < dead_share / 4 for usage in (0.26, 0.24, 0.14, 0.02)]
    assert bank.dead()[:4].tolist() == want and any(want)


def test_the_only_prototype_of_a_primitive_is_never_dead():
    bank = make_bank(num_prototypes=1)
    bank.usage.zero_()
    assert not bank.dead().any()


def test_prototypes_that_live_are_not_reseeded():
    prototypes, features = normalize(torch.randn(4, 3), dim=1), normalize(torch.randn(5, 3), dim=1)
    labels, offsets = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0, 2, 4])
    valid = torch.ones(5, dtype=torch.bool)
    row, place, moves = reseeded(prototypes, torch.zeros(4, dtype=torch.bool), features, labels,
                                 offsets, valid, 2)
    assert not moves.any() and place.equal(prototypes[row])
    *_, moves = reseeded(prototypes, torch.ones(4, dtype=torch.bool), features, labels, offsets,
                         ~valid, 2)
    assert not moves.any()  # a feature that is left out does not move one, either


def test_the_means_have_unit_norm_unless_the_config_says_otherwise():
    assert make_bank().normalize_mean and not make_bank(normalize_mean=False).normalize_mean


@pytest.mark.parametrize('rule', ['share', 'auto'])
def test_a_bank_whose_sizes_the_data_choose_is_empty_before(rule):
    assert len(make_bank(init=False, num_prototypes=rule).prototypes) == 0
