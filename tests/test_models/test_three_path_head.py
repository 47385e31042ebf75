"""The three-path head against plain numpy, Eq. 3-6 and 13."""
from dataclasses import replace

import numpy as np
import pytest
import torch
from mmpretrain.structures import DataSample
from torch import nn
from torch.nn.functional import normalize

from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation import CZSLMetric
from mmcluspro.models import Candidates
from mmcluspro.models.heads import ThreePathHead, fuse
from mmcluspro.registry import MODELS


@MODELS.register_module(force=True)
class TableText(nn.Module):
    """Text features from random tables, through the interface of the text side."""

    def __init__(self, attributes, objects, dim=6):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        table = lambda *shape: nn.Parameter(torch.randn(*shape, generator=generator))
        self.a, self.o = table(len(attributes), dim), table(len(objects), dim)
        self.c = table(len(attributes), len(objects), dim)
        self.logit_scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)

    def encode_attributes(self):
        return normalize(self.a, dim=1)

    def encode_objects(self):
        return normalize(self.o, dim=1)

    def encode_pairs(self, pairs):
        return normalize(self.c[pairs[:, 0], pairs[:, 1]], dim=1)

    def forward(self, pairs):
        return self.encode_attributes(), self.encode_objects(), self.encode_pairs(pairs)


@pytest.fixture
def space():
    pairs = [[0, 0], [0, 2], [1, 1], [1, 3], [2, 0], [2, 3]]
    seen = [True, True, True, False, True, False]
    return CompositionSpace(list('abc'), list('wxyz'), pairs, seen)


def make_head(space, **kwargs):
    return ThreePathHead(space, dict(type='mmcluspro.TableText'), **kwargs)


def make_batch(space, size=5, seed=1):
    generator = torch.Generator().manual_seed(seed)
    feats = tuple(torch.randn(size, 6, generator=generator) for _ in range(3))
    labels = torch.randint(len(space.train_pairs), (size, ), generator=generator)
    samples = []
    for label in labels.tolist():
        attr, obj = space.train_pairs[label].tolist()
        sample = DataSample()
        sample.set_field(attr, 'attr_label')
        sample.set_field(obj, 'obj_label')
        sample.set_field(label, 'pair_label')
        samples.append(sample)
    return feats, samples


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def reference(head, feats, pairs):
    """Probabilities of the three paths by their definition, in float64."""
    scale = np.exp(float(head.text.logit_scale))
    text = head.text
    tables = text.encode_attributes(), text.encode_objects(), text.encode_pairs(pairs)
    return [softmax(scale * normalize(f.double(), dim=1).numpy() @ t.detach().double().numpy().T)
            for f, t in zip(feats, tables)]


def test_scores_are_equation_13(space):
    head = make_head(space)
    feats, _ = make_batch(space)

    got = head.score(feats, head.known_candidates).pair

    p_a, p_o, p_c = reference(head, feats, space.pairs)
    expected = np.empty_like(p_c)
    for i, (a, o) in enumerate(space.pairs.tolist()):
        expected[:, i] = p_c[:, i] + p_a[:, a] * p_o[:, o]
    np.testing.assert_allclose(got.detach().numpy(), expected, atol=1e-6)


def test_the_open_world_shortcut_equals_the_gather(space):
    head = make_head(space)
    feats, _ = make_batch(space)
    every = Candidates.from_space(space.open_world())
    logits = head.logits(feats, every)
    order = torch.randperm(len(every))
    shuffled = replace(every, pairs=every.pairs[order], all_pairs=False)

    dense = fuse(logits, every)
    gathered = fuse(logits._replace(composition=logits.composition[:, order]), shuffled)

    assert every.all_pairs
    torch.testing.assert_close(dense.pair[:, order], gathered.pair)
    torch.testing.assert_close(dense.attribute, logits.attribute.softmax(1))


def test_losses_are_equations_3_to_6(space):
    head = make_head(space, loss_weights=dict(attr=0.5, pair=2.0))
    feats, samples = make_batch(space)

    got = head.loss(feats, samples)

    p_a, p_o, p_c = reference(head, feats, space.train_pairs)
    rows = np.arange(len(samples))
    nll = lambda p, key: -np.log(p[rows, [s.get(key) for s in samples]]).mean()
    assert got['attr_loss'].item() == pytest.approx(0.5 * nll(p_a, 'attr_label'), abs=1e-5)
    assert got['obj_loss'].item() == pytest.approx(nll(p_o, 'obj_label'), abs=1e-5)
    assert got['pair_loss'].item() == pytest.approx(2 * nll(p_c, 'pair_label'), abs=1e-5)


def test_training_never_scores_unseen_pairs(space):
    head = make_head(space)
    feats, samples = make_batch(space)
    sum(head.loss(feats, samples).values()).backward()
    touched = head.text.c.grad.abs().sum(2) > 0
    seen = torch.zeros(3, 4, dtype=torch.bool)
    seen[tuple(space.train_pairs.T)] = True
    assert touched.equal(seen)


def test_a_path_without_weight_is_not_computed(space):
    head = make_head(space, loss_weights=dict(attr=0, obj=0), fusion='composition')
    feats, samples = make_batch(space)
    losses = head.loss(feats, samples)
    assert set(losses) == {'pair_loss'}
    losses['pair_loss'].backward()
    assert head.text.a.grad is None and head.text.o.grad is None
    expected = reference(head, feats, space.pairs)[2]
    np.testing.assert_allclose(
        head.score(feats, head.known_candidates).pair.detach().numpy(), expected, atol=1e-6)


def test_fusion_of_logits_adds_raw_composition_logits(space):
    head = make_head(space, fusion='logits')
    feats, _ = make_batch(space)
    logits = head.logits(feats, head.known_candidates)
    p_a, p_o, _ = reference(head, feats, space.pairs)
    a, o = space.pairs.T.numpy()
    np.testing.assert_allclose(
        head.score(feats, head.known_candidates).pair.detach().numpy(),
        logits[2].detach().numpy() + p_a[:, a] * p_o[:, o], atol=1e-5)


@pytest.mark.parametrize('fusion, link', [
    ('probability', 'log'), ('composition', 'log'), ('logits', 'identity')])
def test_the_link_belongs_to_the_fusion(space, fusion, link):
    assert make_head(space, fusion=fusion).link == link


def test_one_path_is_swept_as_its_logits(space):
    """log p(c) and the composition logits have the same curve, to the last digits."""
    head = make_head(space, fusion='composition').double()
    head.text.logit_scale.data += 1
    generator = torch.Generator().manual_seed(0)
    feats = (torch.randn(200, 6, generator=generator), )
    targets = torch.arange(200) % len(space)

    scores = head.score(feats, head.known_candidates).pair.detach()
    logits = head.logits(feats, head.known_candidates, primitives=False)[2].detach()

    got = CZSLMetric.calculate(scores, targets, space.seen, space.pairs, bias_on='log')
    want = CZSLMetric.calculate(logits, targets, space.seen, space.pairs)
    literal = CZSLMetric.calculate(scores, targets, space.seen, space.pairs)
    for name in ('auc', 'hm', 'seen', 'unseen', 'auc_exact', 'attr_acc', 'obj_acc'):
        assert got[name] == pytest.approx(want[name], abs=1e-9)
    assert abs(literal['auc'] - want['auc']) > 0.05


@pytest.mark.parametrize('fusion', ['logits', 'probability'])
def test_three_paths_need_three_features(space, fusion):
    head = make_head(space, fusion=fusion)
    feats, samples = make_batch(space)
    words = f"head.fusion='{fusion}' .* there is 1 feature per image: set model.neck"

    with pytest.raises(ValueError, match=words):
        head.predict(feats[-1:])
    with pytest.raises(ValueError, match=words):
        head.loss(feats[-1:], samples)


@pytest.mark.parametrize('size', [1, 4])
def test_predict_fills_a_field_for_each_world(space, size):
    head = make_head(space)
    worlds = dict(closed=Candidates.from_space(space),
                  open=Candidates.from_space(space.open_world()))
    feats, samples = make_batch(space, size)
    with torch.no_grad():
        got = head.predict(feats, samples, worlds)
        closed, opened = (head.score(feats, candidates).pair for candidates in worlds.values())
    for i, sample in enumerate(got):
        assert sample.closed_score.equal(closed[i]) and sample.open_score.equal(opened[i])
        assert sample.pred_label.item() == closed[i].argmax()
    assert len(head.predict(feats)) == size


@pytest.mark.parametrize('kwargs, message', [
    (dict(feasibility='glove'), r"head\.feasibility must be one of .* got 'glove'"),
    (dict(fusion='sum'), r'head\.fusion must be one of .* got \'sum\''),
    (dict(loss_weights=dict(attribute=1)), r"head\.loss_weights .* \['attribute'\]"),
])
def test_wrong_fields_are_named(space, kwargs, message):
    with pytest.raises(ValueError, match=message):
        make_head(space, **kwargs)
