"""The three-path head against plain numpy, Eq. 3-6 and 13."""
import numpy as np
import pytest
import torch
from mmpretrain.structures import DataSample
from torch import nn
from torch.nn.functional import normalize

from mmcluspro.datasets import CompositionSpace
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

    got = head.scores(feats, 'closed')

    p_a, p_o, p_c = reference(head, feats, space.pairs)
    expected = np.empty_like(p_c)
    for i, (a, o) in enumerate(space.pairs.tolist()):
        expected[:, i] = p_c[:, i] + p_a[:, a] * p_o[:, o]
    np.testing.assert_allclose(got.detach().numpy(), expected, atol=1e-6)


def test_the_open_world_shortcut_equals_the_gather(space):
    head = make_head(space)
    feats, _ = make_batch(space)
    pairs = space.open_world().pairs
    logits = head.logits(feats, pairs)
    order = torch.randperm(len(pairs))
    shuffled = fuse((logits[0], logits[1], logits[2][:, order[:-1]]), pairs[order[:-1]])
    dense = fuse(logits, pairs)
    # Without the last pair the set is not all pairs, so that the gather runs; its softmax has one
    # term less, which only concerns the composition path.
    p = lambda x: x.softmax(1)
    torch.testing.assert_close(
        dense[:, order[:-1]] - p(logits[2])[:, order[:-1]],
        shuffled - p(logits[2][:, order[:-1]]))


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
    np.testing.assert_allclose(head.scores(feats, 'closed').detach().numpy(), expected, atol=1e-6)


def test_fusion_of_logits_adds_raw_composition_logits(space):
    head = make_head(space, fusion='logits')
    feats, _ = make_batch(space)
    logits = head.logits(feats, space.pairs)
    p_a, p_o, _ = reference(head, feats, space.pairs)
    a, o = space.pairs.T.numpy()
    np.testing.assert_allclose(
        head.scores(feats, 'closed').detach().numpy(),
        logits[2].detach().numpy() + p_a[:, a] * p_o[:, o], atol=1e-5)


@pytest.mark.parametrize('size', [1, 4])
def test_predict_fills_a_field_for_each_world(space, size):
    head = make_head(space)
    head.set_worlds({'closed': space, 'open': space.open_world()})
    feats, samples = make_batch(space, size)
    with torch.no_grad():
        got = head.predict(feats, samples)
        closed, opened = head.scores(feats, 'closed'), head.scores(feats, 'open')
    for i, sample in enumerate(got):
        assert sample.closed_score.equal(closed[i]) and sample.open_score.equal(opened[i])
        assert sample.pred_label.item() == closed[i].argmax()
    assert len(head.predict(feats)) == size


def test_another_label_space_is_refused(space):
    head = make_head(space)
    other = CompositionSpace(list('abd'), list('wxyz'), [[0, 0]], [True])
    with pytest.raises(ValueError, match='model.space and the datasets'):
        head.set_worlds({'closed': other})


@pytest.mark.parametrize('kwargs, message', [
    (dict(fusion='sum'), r'head\.fusion must be one of .* got \'sum\''),
    (dict(loss_weights=dict(attribute=1)), r"head\.loss_weights .* \['attribute'\]"),
])
def test_wrong_fields_are_named(space, kwargs, message):
    with pytest.raises(ValueError, match=message):
        make_head(space, **kwargs)
