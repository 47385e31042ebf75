"""ClusPro+: prototypes of seen pairs, and what they may change in prediction."""
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmpretrain.structures import DataSample
from torch import nn
from torch.nn.functional import normalize

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models import Candidates
from mmcluspro.models.heads import ClusProHead, ClusProPlusHead, fuse, redistribute
from mmcluspro.models.prototypes import PairPrototypes
from mmcluspro.models.structures import Logits
from mmcluspro.registry import MODELS

DIM = 6
SEEN = [True] * 11 + [False] * 2  # pairs a x o in order; (2, 1) and (2, 2) are unseen


@MODELS.register_module(force=True)
class SixWideText(nn.Module):
    """Text features that do not learn, for two more names of each side."""

    def __init__(self, attributes, objects):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        draw = lambda *shape: normalize(torch.randn(*shape, DIM, generator=generator), dim=-1)
        sizes = len(attributes) + 2, len(objects) + 2
        self.tables = draw(sizes[0]), draw(sizes[1]), draw(*sizes)
        self.sizes = len(attributes), len(objects)
        self.logit_scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)

    def encode_pairs(self, pairs):
        return self.tables[2][pairs[:, 0], pairs[:, 1]]

    def forward(self, pairs):
        return self.tables[0], self.tables[1], self.encode_pairs(pairs)


@pytest.fixture
def space():
    pairs = [[a, o] for a in range(3) for o in range(5)][:13]
    return CompositionSpace(list('abc'), list('vwxyz'), pairs, SEEN)


def make_head(space, cls=ClusProPlusHead, **kwargs):
    torch.manual_seed(0)
    return cls(space, dict(type='mmcluspro.SixWideText'), in_channels=DIM,
               bank=dict(num_prototypes=1, single='momentum'), **kwargs).train()


def make_batch(space, size=30, seed=1):
    generator = torch.Generator().manual_seed(seed)
    feats = tuple(torch.randn(size, DIM, generator=generator) for _ in range(3))
    rows = space.seen.nonzero()[:, 0]
    samples = []
    for label in rows[torch.randint(len(rows), (size, ), generator=generator)].tolist():
        sample = DataSample()
        for name, value in zip(('attr', 'obj', 'pair'), (*space.pairs[label].tolist(), label)):
            sample.set_field(value, f'{name}_label')
        samples.append(sample)
    return feats, samples


def trained(space, batches=3, **kwargs):
    head = make_head(space, **kwargs)
    for seed in range(batches):
        feats, samples = make_batch(space, seed=seed)
        if not seed:
            labels = head.labels(samples)
            for branch, feature in zip(('attr', 'obj'), feats):
                if branch in head.banks:
                    head.bank(branch).initialise(feature, labels[branch])
        head.loss(feats, samples)
        head.update_prototypes()
    return head.eval()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.floats(0, 0.99))
def test_the_running_sum_is_the_one_of_a_loop(seed, size, decay):
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.tensor([[0, 1], [1, 0], [1, 1]])
    ours = PairPrototypes(pairs, (2, 2), DIM, decay)
    literal = torch.zeros(3, 2, DIM, dtype=torch.double)
    for _ in range(3):
        features = torch.randn(2, size, DIM, generator=generator)
        labels = torch.randint(2, (size, 2), generator=generator)  # (0, 0) is no seen pair
        features[0, 0, 2] = torch.nan
        ours.update(features, labels)
        for row, pair in enumerate(pairs):
            for branch in range(2):
                mine = [normalize(f.double(), dim=0) for f, label in zip(features[branch], labels)
                        if label.equal(pair) and f.isfinite().all()]
                literal[row, branch] *= decay ** len(mine)
                literal[row, branch] += sum(mine)
    torch.testing.assert_close(ours.sums.double(), literal, rtol=1e-4, atol=1e-5)


def test_pairs_without_an_image_and_new_names_have_no_prototype():
    bank = PairPrototypes(torch.tensor([[0, 1], [1, 0]]), (2, 2), DIM)
    bank.update(torch.randn(2, 4, DIM), torch.tensor([[0, 1]]).expand(4, 2))
    asked = torch.tensor([[0, 1], [1, 0], [1, 1], [2, 0], [0, 3]])
    assert bank.lookup(asked).tolist() == [0, 1, -1, -1, -1]
    found = bank.of(asked)
    torch.testing.assert_close(found[0].norm(dim=1), torch.ones(2))
    assert not found[1:].any()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.floats(0, 100))
def test_evidence_moves_probability_between_known_pairs_only(seed, size, weight):
    generator = torch.Generator().manual_seed(seed)
    logits, evidence = (torch.randn(4, size, generator=generator) * 3 for _ in range(2))
    known = torch.rand(size, generator=generator) < 0.5
    new = redistribute(logits, weight * evidence, known)
    assert torch.equal(new[:, ~known], logits[:, ~known])
    before, after = logits.softmax(dim=1), new.softmax(dim=1)
    torch.testing.assert_close(after[:, ~known], before[:, ~known], rtol=1e-3, atol=1e-6)
    if known.any():
        torch.testing.assert_close(
            new[:, known].softmax(dim=1),
            (logits + weight * evidence)[:, known].softmax(dim=1), rtol=1e-3, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize('fusion', ['probability', 'logits', 'composition'])
@pytest.mark.parametrize('branches', [('attr', 'obj'), ()])
def test_prediction_is_equation_13_with_the_evidence_of_both_branches(space, fusion, branches):
    head = trained(space, fusion=fusion, branches=branches, evidence=0.7)
    feats, _ = make_batch(space, size=4, seed=9)
    candidates = Candidates.from_space(space)
    scale, logits = head.text.logit_scale.exp(), torch.empty(4, len(space.pairs))
    for image in range(4):
        unit = [feats[path][image] / feats[path][image].norm() for path in range(3)]
        raised = []
        for place, (a, o) in enumerate(space.pairs.tolist()):
            logits[image, place] = scale * unit[2] @ head.text.tables[2][a, o]
            if space.seen[place]:
                row = head.pairs.lookup(torch.tensor([[a, o]]))[0]
                looks = [each / each.norm() for each in head.pairs.sums[row]]
                raised.append(logits[image, place] + 0.7 * scale * (
                    unit[0] @ looks[0] + unit[1] @ looks[1]))
        raised = torch.stack(raised)
        mass = logits[image, space.seen].exp().sum()
        logits[image, space.seen] = (raised.softmax(dim=0) * mass).log()
    plain = head.logits(feats, candidates)
    want = fuse(Logits(plain.attribute, plain.object, logits), candidates, fusion).pair
    torch.testing.assert_close(head.score(feats, candidates).pair, want, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_unseen_pairs_losses_and_a_weight_of_zero_are_those_of_cluspro(space):
    plus, plain = trained(space), make_head(space, ClusProHead)
    plain.load_state_dict({key: value for key, value in plus.state_dict().items()
                           if not key.startswith('pairs.')})
    feats, samples = make_batch(space, seed=9)
    candidates = Candidates.from_space(space)
    scores = plain.eval().score(feats, candidates).pair
    ours = plus.score(feats, candidates).pair
    torch.testing.assert_close(ours[:, ~space.seen], scores[:, ~space.seen])
    assert (ours - scores)[:, space.seen].abs().max() > 1e-3
    plus.evidence = 0.0
    torch.testing.assert_close(plus.score(feats, candidates).pair, scores)
    losses = [head.train().loss(feats, samples) for head in (plus, plain)]
    assert losses[0].keys() == losses[1].keys()
    for name, value in losses[0].items():
        torch.testing.assert_close(value, losses[1][name])


@torch.no_grad()
def test_new_names_among_the_candidates_are_unseen_pairs(space):
    head = trained(space)
    feats, _ = make_batch(space, size=4, seed=9)
    pairs = torch.tensor([[0, 0], [0, 1], [1, 0]])
    asked = Candidates(('a', 'new'), ('v', 'other'), pairs, torch.tensor([True, False, False]),
                       torch.tensor([0, 3]), torch.tensor([0, 6]),
                       torch.tensor([[0, 0], [0, 6], [3, 0]]), False, False)
    scores = head.score(feats, asked).pair
    head.evidence = 0.0  # a single seen pair has nobody to share with
    torch.testing.assert_close(scores, head.score(feats, asked).pair)


@torch.no_grad()
def test_numpy_scores_as_torch_does(space):
    head = trained(space)
    feats, _ = make_batch(space, size=5, seed=9)
    candidates, portable = Candidates.from_space(space), head.portable()
    texts = head.texts(candidates)
    table = dict(zip(('text_a', 'text_o', 'text_c'), (text.numpy() for text in texts)),
                 pairs=candidates.pairs.numpy(), **portable.arrays(candidates))
    features = {path: normalize(f, dim=1).numpy() for path, f in zip(portable.paths, feats)}
    torch.testing.assert_close(torch.from_numpy(portable.score(features, table)),
                               head.score(feats, candidates).pair, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_two_losses_before_one_update_count_as_one_batch(space):
    once, twice = trained(space, batches=1), trained(space, batches=1)
    feats, samples = make_batch(space, size=20, seed=5)
    once.train().loss(feats, samples)
    for part in (slice(0, 12), slice(12, 20)):
        twice.train().loss(tuple(f[part] for f in feats), samples[part])
    for head in (once, twice):
        head.update_prototypes()
        assert not head.observed
    torch.testing.assert_close(once.pairs.sums, twice.pairs.sums)
    assert 'pair prototypes' in once.replicated


@pytest.mark.parametrize('field, value', [('evidence', -1.0), ('evidence', float('nan')),
                                          ('pair_decay', 1.0)])
def test_a_wrong_number_names_the_field(space, field, value):
    with pytest.raises(ValueError, match=f'head.{field} must .* got {value}'):
        make_head(space, **{field: value})


def test_the_lookup_takes_no_memory_for_pairs_that_do_not_exist():
    pairs = torch.tensor([[99_999, 0], [0, 99_999], [5, 7]])
    prototypes = PairPrototypes(pairs, (100_000, 100_000), 4)
    assert prototypes.lookup(pairs).tolist() == [0, 1, 2]
    other = torch.tensor([[0, 0], [5, 8], [100_000, 0], [0, 100_000], [4, 100_007]])
    assert prototypes.lookup(other).tolist() == [-1] * 5, 'the last one has the key of a known pair'
    assert sum(buffer.numel() for buffer in prototypes.buffers()) == 3 * 2 * 4 + 2 * 3
    empty = PairPrototypes(torch.zeros(0, 2, dtype=torch.long), (2, 2), 4)
    assert empty.lookup(pairs).tolist() == [-1] * 3
