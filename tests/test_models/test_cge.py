"""CGE and Co-CGE: scores and losses recomputed, feasibility in the graph, and what is refused."""
import math
from types import SimpleNamespace

import pytest
import torch

from mmcluspro.engine.hooks import PrototypeHook

GRAPH = dict(out_dim=8, hidden_dims=[7], dropout=0.0)


def log_softmax(row):
    top = max(row)
    return [value - top - math.log(sum(math.exp(other - top) for other in row)) for value in row]


def learning(head):
    return {name: p for name, p in head.named_parameters() if p.requires_grad}


def test_cge_scores_are_dot_products(word_head, word_batch):
    head = word_head('CGEHead', 'GraphText', GRAPH)
    feats, samples = word_batch(5)
    texts = head.text.encode_pairs(head.known_candidates.pairs)

    got = head.score((feats, ), head.known_candidates).pair

    expected = [[sum(float(x * y) for x, y in zip(f, t)) for t in texts] for f in feats]
    torch.testing.assert_close(got, torch.tensor(expected), atol=1e-5, rtol=1e-5)
    assert head.link == 'identity'
    seen = [[row[i] for i in head.known_candidates.seen.nonzero()[:, 0]] for row in expected]
    loss = -sum(log_softmax(row)[sample.pair_label] for row, sample in zip(seen, samples)) / 5
    losses = head.loss((feats, ), samples)
    assert losses.keys() == {'pair_loss'}
    assert losses['pair_loss'].item() == pytest.approx(loss, rel=1e-4)


def test_cge_cannot_be_exported(word_head):
    with pytest.raises(ValueError, match='CGEHead cannot be exported'):
        word_head('CGEHead', 'GraphText', GRAPH).portable()


@pytest.mark.parametrize('nodes, count', [('known', 13), ('seen', 9), ('all', 20)])
def test_which_pairs_are_nodes(word_head, nodes, count):
    assert len(word_head('CGEHead', 'GraphText', GRAPH, nodes=nodes).text.node_pairs) == count


@pytest.mark.parametrize('kind, fields', [
    ('CGEHead', {}), ('CoCGEHead', {}), ('CoCGEHead', dict(world='open'))])
def test_gradients_reach_everything_that_learns(word_head, word_batch, kind, fields):
    head = word_head(kind, 'GraphText', dict(GRAPH, learn_vectors=True), **fields)
    head.begin_epoch(1)
    feats, samples = word_batch()
    feats.requires_grad_()
    sum(head.loss((feats, ), samples).values()).backward()
    assert not [name for name, p in learning(head).items() if p.grad is None or not p.grad.any()]
    assert feats.grad.abs().sum(dim=1).all()


def test_parameters_on_ut_zappos(word_space):
    """Published code on UT-Zappos: 300 → 4096 → 300 in the graph; 512 → 300 for images."""
    from mmcluspro.models.zoo.cge import GraphText
    space, _ = word_space
    text = GraphText(attributes=space.attributes, objects=space.objects, path=None, out_dim=300,
                     hidden_dims=[4096])
    count = sum(p.numel() for p in text.parameters() if p.requires_grad)
    assert count == 300 * 4096 + 4096 + 4096 * 300 + 300


def test_co_cge_compares_cosines(word_head, word_batch):
    head = word_head('CoCGEHead', 'GraphText', dict(GRAPH, temperature=0.1))
    feats, samples = word_batch(4)
    candidates = head.known_candidates
    cosines = torch.cosine_similarity(
        feats[:, None], head.text.encode_pairs(candidates.pairs)[None], dim=2)
    torch.testing.assert_close(head.score((feats, ), candidates).pair,
                               (cosines / 0.1).softmax(dim=1))
    rows = (cosines[:, candidates.seen] / 0.1).tolist()
    loss = -sum(log_softmax(row)[sample.pair_label] for row, sample in zip(rows, samples)) / 4
    assert head.loss((feats, ), samples)['pair_loss'].item() == pytest.approx(loss, rel=1e-4)
    assert head.portable().paths == ('composition', )


def feasibility(head, attributes, objects):
    """Eq. 14 in loops."""
    pairs = {tuple(pair) for pair in head.space.train_pairs.tolist()}
    found = torch.zeros(len(attributes), len(objects))
    for a in range(len(attributes)):
        for o in range(len(objects)):
            by_obj = [float(torch.cosine_similarity(objects[o], objects[p], dim=0))
                      for p in range(len(objects)) if p != o and (a, p) in pairs]
            by_attr = [float(torch.cosine_similarity(attributes[a], attributes[p], dim=0))
                       for p in range(len(attributes)) if p != a and (p, o) in pairs]
            found[a, o] = (max(by_obj, default=-1) + max(by_attr, default=-1)) / 2
    return found


def test_the_open_world_has_margins_and_weights(word_head, word_batch):
    fields = dict(world='open', margin=0.4, margin_epochs=15)
    head = word_head('CoCGEHead', 'GraphText', dict(GRAPH, temperature=0.1), **fields)
    feats, samples = word_batch(3)
    seen = torch.zeros(4, 5, dtype=torch.bool)
    seen[head.space.train_pairs[:, 0], head.space.train_pairs[:, 1]] = True
    torch.testing.assert_close(head.text.weights, seen.flatten().float())
    with torch.no_grad():
        names = head.text.eval().encode_attributes(), head.text.encode_objects()
        head.text.train()

    head.begin_epoch(0)
    assert head.margins.unique().tolist() == [-10, 0]
    # Before the validation of the sixth epoch, as published.
    PrototypeHook().after_train_epoch(SimpleNamespace(model=SimpleNamespace(head=head), epoch=5))

    rho = feasibility(head, *names)
    torch.testing.assert_close(head.text.weights.view(4, 5),
                               torch.where(seen, 1.0, rho.clamp_min(0)))
    margins = torch.where(seen, 0.0, -0.4 * 6 / 15 * rho)
    torch.testing.assert_close(head.margins.view(4, 5), margins)
    every = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    cosines = torch.cosine_similarity(
        feats[:, None], head.text.encode_pairs(every)[None], dim=2)
    rows = ((cosines + margins.flatten()) / 0.1).tolist()
    loss = -sum(log_softmax(row)[5 * sample.attr_label + sample.obj_label]
                for row, sample in zip(rows, samples)) / 3
    assert head.loss((feats, ), samples)['pair_loss'].item() == pytest.approx(loss, rel=1e-4)
    assert head.text.training


@pytest.mark.parametrize('fields, message', [
    (dict(nodes='some'), 'head.nodes must be one of'),
    (dict(world='half'), 'head.world must be one of'),
    (dict(world='open', nodes='seen'), 'does not fit head.world'),
    (dict(margin_epochs=0), 'head.margin_epochs')])
def test_wrong_fields_are_named(word_head, fields, message):
    with pytest.raises(ValueError, match=message):
        word_head('CoCGEHead', 'GraphText', GRAPH, **fields)


def test_the_text_side_must_be_a_graph(word_head):
    with pytest.raises(ValueError, match='needs the text side mmcluspro.GraphText'):
        word_head('CGEHead', 'WordVectorText', dict(out_dim=8))


def test_a_graph_larger_than_the_memory_is_refused_before_it_runs(word_head, word_batch,
                                                                  monkeypatch):
    """A file of 5 MB can ask for 16 GB: a thousand attributes with a thousand objects."""
    from mmcluspro.models.zoo import cge
    head = word_head('CGEHead', 'GraphText', GRAPH, nodes='all').eval()
    monkeypatch.setattr(cge, 'SMALL', 0)
    monkeypatch.setattr(cge, 'free_bytes', lambda device: 1000)
    with pytest.raises(ValueError, match='The graph of 20 pairs .* 0.0 GB are free'):
        head.text.encode_pairs(head.text.node_pairs)
    monkeypatch.setattr(cge, 'MOST_NODES', 19)
    with pytest.raises(ValueError, match="head.nodes='all' makes . x . pairs nodes, more than 19"):
        word_head('CoCGEHead', 'GraphText', GRAPH, world='open')
