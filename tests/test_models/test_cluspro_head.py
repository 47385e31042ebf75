"""The ClusPro head: what each part of Eq. 12 sees, and what prediction does not."""
import pytest
import torch
from mmpretrain.structures import DataSample
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models.heads import ClusProHead, ThreePathHead
from mmcluspro.models.losses import hsic
from mmcluspro.models.prototypes.clustered import MOST_CALLS
from mmcluspro.registry import MODELS

DIM = 6


@MODELS.register_module(force=True)
class ConstantText(nn.Module):
    """Text features that do not learn."""

    def __init__(self, attributes, objects):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        draw = lambda *shape: normalize(torch.randn(*shape, DIM, generator=generator), dim=-1)
        self.tables = draw(len(attributes)), draw(len(objects)), draw(len(attributes), len(objects))
        self.logit_scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)

    def encode_pairs(self, pairs):
        return self.tables[2][pairs[:, 0], pairs[:, 1]]

    def forward(self, pairs):
        return self.tables[0], self.tables[1], self.encode_pairs(pairs)


@pytest.fixture
def space():
    pairs = [[a, o] for a in range(3) for o in range(4)]
    return CompositionSpace(list('abc'), list('wxyz'), pairs, [True] * 12)


def make_head(space, **kwargs):
    torch.manual_seed(0)
    head = ClusProHead(space, dict(type='mmcluspro.ConstantText'), in_channels=DIM, **kwargs)
    head.train()
    return head


def make_batch(space, size=24, seed=1):
    generator = torch.Generator().manual_seed(seed)
    feats = tuple(torch.randn(size, DIM, generator=generator).requires_grad_() for _ in range(3))
    labels = torch.randint(len(space.pairs), (size, ), generator=generator)
    samples = []
    for label in labels.tolist():
        attr, obj = space.pairs[label].tolist()
        sample = DataSample()
        for name, value in (('attr', attr), ('obj', obj), ('pair', label)):
            sample.set_field(value, f'{name}_label')
        samples.append(sample)
    return feats, samples


def start(head, feats, samples):
    labels = head.labels(samples)
    for branch, feature in zip(('attr', 'obj'), feats):
        if branch in head.banks:
            head.bank(branch).initialise(feature.detach(), labels[branch])


def test_the_objective_is_equation_12(space):
    head = make_head(space, bank=dict(num_prototypes=2))
    feats, samples = make_batch(space)
    start(head, feats, samples)

    losses = head.loss(feats, samples)

    plain = ThreePathHead(space, dict(type='mmcluspro.ConstantText')).loss(feats, samples)
    assert {key: losses[key].item() for key in plain} == pytest.approx(
        {key: value.item() for key, value in plain.items()})
    f_a, f_o = (normalize(f, dim=1) for f in feats[:2])
    rows = head.observed['attr'].rows, head.observed['obj'].rows
    table = torch.cat([head.bank('attr').prototypes, head.bank('obj').prototypes])
    assert len(table) == 2 * (3 + 4)
    contrast = cross_entropy(
        torch.cat([f_a, f_o]) @ table.T / 0.1, torch.cat([rows[0], rows[1] + 6]))
    assert losses['pcl_loss'].item() == pytest.approx(0.2 * contrast.item(), abs=1e-5)
    dependence = hsic(f_a, head.bank('obj').prototypes[rows[1]]) + hsic(
        f_o, head.bank('attr').prototypes[rows[0]])
    assert losses['pdl_loss'].item() == pytest.approx(0.5 * dependence.item(), abs=1e-6)


def test_features_are_assigned_inside_their_own_primitive(space):
    head = make_head(space, bank=dict(num_prototypes=3))
    feats, samples = make_batch(space)
    start(head, feats, samples)
    head.loss(feats, samples)
    for branch, seen in head.observed.items():
        offsets = head.bank(branch).offsets
        assert bool((seen.rows >= offsets[seen.labels]).all())
        assert bool((seen.rows < offsets[seen.labels + 1]).all())


def test_prototypes_move_only_when_the_hook_says_so(space):
    head = make_head(space, bank=dict(num_prototypes=2, momentum=0.9, correct_only=False))
    feats, samples = make_batch(space)
    start(head, feats, samples)
    feats, samples = make_batch(space, seed=2)
    before = head.bank('attr').prototypes.clone()
    sum(head.loss(feats, samples).values()).backward()
    assert head.bank('attr').prototypes.equal(before)
    head.update_prototypes()
    after = head.bank('attr').prototypes
    assert not after.equal(before)
    torch.testing.assert_close(after.norm(dim=1), torch.ones(len(after)))
    assert not head.observed
    assert set(head.health()) == {f'{b}_{n}' for b in ('attr', 'obj')
                                  for n in ('used', 'balance', 'drift', 'lag', 'transport')}


@pytest.mark.parametrize('kwargs, keys', [
    (dict(loss_pdl=None), {'pcl_loss'}),
    (dict(loss_pcl=None), {'pdl_loss'}),
    (dict(loss_pcl=None, loss_pdl=None), set()),
    (dict(branches=()), set()),
    (dict(branches=('attr', )), {'pcl_loss', 'pdl_loss'}),
    (dict(bank=dict(num_prototypes=1)), {'pcl_loss', 'pdl_loss'}),
    (dict(bank=dict(assigner=dict(type='mmcluspro.CosineAssigner'))), {'pcl_loss', 'pdl_loss'}),
    (dict(bank=dict(assigner=dict(type='mmcluspro.ClassicalOT'))), {'pcl_loss', 'pdl_loss'}),
    (dict(bank=dict(num_prototypes='share')), {'pcl_loss', 'pdl_loss'}),
])
def test_every_ablation_is_a_field(space, kwargs, keys):
    head = make_head(space, **kwargs)
    feats, samples = make_batch(space)
    start(head, feats, samples)
    losses = head.loss(feats, samples)
    assert set(losses) == {'attr_loss', 'obj_loss', 'pair_loss'} | keys
    total = sum(losses.values())
    assert torch.isfinite(total)
    total.backward()
    assert all(torch.isfinite(f.grad).all() for f in feats)


def test_one_branch_leaves_the_other_feature_out_of_the_contrast(space):
    head = make_head(space, branches=('attr', ), loss_pdl=None)
    feats, samples = make_batch(space)
    start(head, feats, samples)
    head.loss(feats, samples)['pcl_loss'].backward()
    assert feats[0].grad is not None and feats[0].grad.abs().sum() > 0
    assert feats[1].grad is None


def test_prediction_does_not_know_of_prototypes(space):
    head = make_head(space)
    head.eval()
    feats, _ = make_batch(space)
    with torch.no_grad():
        scores = head.score(feats, head.known_candidates).pair
    plain = ThreePathHead(space, dict(type='mmcluspro.ConstantText')).eval()
    with torch.no_grad():
        assert scores.equal(plain.score(feats, plain.known_candidates).pair)


def test_training_before_initialisation_says_what_is_missing(space):
    head = make_head(space)
    with pytest.raises(RuntimeError, match='PrototypeHook'):
        head.loss(*make_batch(space))


def test_an_unknown_branch_is_named(space):
    with pytest.raises(ValueError, match=r"head\.branches takes 'attr' and 'obj', got \['pair'\]"):
        make_head(space, branches=('pair', ))


def test_two_losses_in_one_step_both_move_the_prototypes(space):
    """As with two views of each image, or the two passes of sharpness-aware training."""
    views = make_batch(space, seed=2), make_batch(space, seed=3)
    twice, once = (make_head(space, bank=dict(num_prototypes=2, momentum=0.9)) for _ in range(2))
    for head in (twice, once):
        start(head, *make_batch(space))
    for feats, samples in views:
        twice.loss(feats, samples)
    joined = [torch.cat(parts).detach() for parts in zip(*(feats for feats, _ in views))]
    seen = twice.observed['attr']

    assert len(seen.labels) == len(seen.rows) == 48
    torch.testing.assert_close(seen.features, normalize(joined[0], dim=1))
    once.bank('attr').update(seen.features, seen.labels, seen.rows)
    twice.update_prototypes()
    torch.testing.assert_close(twice.bank('attr').prototypes, once.bank('attr').prototypes)
    assert not twice.observed


def test_observations_do_not_pile_up_where_nobody_updates(space):
    head = make_head(space, bank=dict(num_prototypes=2))
    feats, samples = make_batch(space)
    start(head, feats, samples)
    for _ in range(MOST_CALLS + 3):
        head.loss(feats, samples)

    assert len(head.observed['attr'].labels) == MOST_CALLS * 24


def test_clustering_needs_the_primitive_features(space):
    head = make_head(space, loss_weights=dict(attr=0, obj=0), fusion='composition')
    feats, samples = make_batch(space)

    with pytest.raises(ValueError, match='ClusProHead clusters .* set model.neck'):
        head.loss(feats[-1:], samples)
